# Filters `show servers state` for HAProxy's state file, so that a reload reads only states from it:
#
#   echo "show servers state" | socat stdio /run/haproxy/nodegate.sock |
#     awk -f haproxy-states.awk /etc/haproxy/haproxy.cfg - > /var/lib/haproxy/server-state
#
# HAProxy prefers a server's port in the file to the port in its configuration. So the filter drops a server
# whose address or port in the configuration has changed. It keeps only the columns that HAProxy needs: the
# ports of checks come after those.
NR == FNR {
    if ($1 == "server") configured[$2, $3]
    next
}
FNR <= 2 || ($4, $5 ":" $19) in configured {
    if (NF > 20) NF = 20
    print
}
