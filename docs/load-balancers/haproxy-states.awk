# Filters `show servers state` for HAProxy's state file, so that a reload reads only states from it:
#
#   echo "show servers state" | socat stdio /run/haproxy/nodegate.sock |
#     awk -f haproxy-states.awk /etc/haproxy/haproxy.cfg - > /var/lib/haproxy/server-state
#
# HAProxy prefers a server's port in the file to the port in its configuration. So the filter drops a server
# whose address or port in the configuration has changed, or is written in a way that it can't compare (a
# variable, a long form of an IPv6 address), and says so. It keeps only the columns that HAProxy needs: the
# ports of checks come after those.
function configure(name, address,    port) {
    sub(/^[a-z0-9]+@/, "", address)
    port = address
    if (sub(/.*:/, "", port)) sub(/:[^:]*$/, "", address); else port = 0
    gsub(/[][]/, "", address)
    configured[name, tolower(address), port + 0]
}
NR == FNR {
    gsub(/["']/, "")
    if ($1 == "server") configure($2, $3)
    if ($1 == "server-template") {
        last = split($3, range, "-")
        for (i = last > 1 ? range[1] + 0 : 1; i <= range[last] + 0; i++) configure($2 i, $4)
    }
    next
}
FNR <= 2 || ($4, $5, $19 + 0) in configured || ($4, tolower($18), $19 + 0) in configured {
    if (NF > 20) NF = 20
    print
    next
}
NF {
    print "haproxy-states.awk: not kept: " $2 "/" $4 ", which the configuration does not have at " $5 ":" $19 > "/dev/stderr"
}
