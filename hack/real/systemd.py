"""systemd's stand-in for hack/real-node, a template of python3-dbusmock: it only writes down which target logind starts."""

import os
import time

import dbus

BUS_NAME = "org.freedesktop.systemd1"
MAIN_OBJ = "/org/freedesktop/systemd1"
MAIN_IFACE = "org.freedesktop.systemd1.Manager"
SYSTEM_BUS = True
PRIVATE = os.environ["REAL_CLUSTER"] + "/private"


def load(mock, parameters):
    mock.AddProperties(MAIN_IFACE, {"SystemState": "running"})
    # logind refuses to start a target that is masked.
    mock.AddObject(MAIN_OBJ + "/unit/reboot_2etarget", "org.freedesktop.systemd1.Unit", {"LoadState": "loaded"}, [])


@dbus.service.method(MAIN_IFACE)
def Subscribe(self):
    pass


# By this the kubelet has logind read the delay that it has configured.
@dbus.service.method(MAIN_IFACE, in_signature="ssi")
def KillUnit(self, unit, who, number):
    with open(PRIVATE + "/logind.pid") as file:
        os.kill(int(file.read()), number)


@dbus.service.method(MAIN_IFACE, in_signature="ss", out_signature="o")
def StartUnit(self, unit, mode):
    with open(PRIVATE + "/reached", "a") as file:
        file.write(f"{time.time():.3f} {unit}\n")
    return MAIN_OBJ + "/job/1"
