# What HAProxy's state file is to hold of `show servers state`, so that a reload takes states from it and nothing else:
#
#   echo "show servers state" | socat stdio /run/haproxy/nodegate.sock |
#     awk -f haproxy-states.awk /etc/haproxy/haproxy.cfg - > /var/lib/haproxy/server-state
#
# HAProxy believes the file's port of a server rather than the configuration's. So a server that the configuration has at
# another address or port by now has no line, and of the others only the columns that HAProxy needs: the ports of checks
# come after those.
NR == FNR {
    if ($1 == "server") configured[$2, $3]
    next
}
FNR <= 2 || ($4, $5 ":" $19) in configured {
    if (NF > 20) NF = 20
    print
}
