complete -c nodegate-haproxy -l config -d 'The configuration that HAProxy reads; it is replaced as a whole' -r -F
complete -c nodegate-haproxy -l template -d 'The operator\'s template or hand-written head; without it a small default head is used' -r -F
complete -c nodegate-haproxy -l state-file -d 'Where the states of servers are kept for HAProxy\'s next process; "none" keeps them nowhere. Without it: the name of the --config file with .servers behind it' -r -F
complete -c nodegate-haproxy -l before -d 'Files that HAProxy is started with (-f) before --config; they are only read, by haproxy -c' -r -F
complete -c nodegate-haproxy -l haproxy -d 'HAProxy\'s program, for haproxy -c' -r -F
complete -c nodegate-haproxy -l master-socket -d 'HAProxy\'s master socket (haproxy -W -S): reloads, and states unless there is a --runtime-socket' -r -F
complete -c nodegate-haproxy -l runtime-socket -d 'HAProxy\'s stats socket with "level admin"' -r -F
complete -c nodegate-haproxy -l reload-command -d 'How to reload without a master socket; words are split at spaces, and exit status 0 is success' -r -f -a "(__fish_complete_command)"
complete -c nodegate-haproxy -l reload-timeout -d 'How long a reload may take' -r -f
complete -c nodegate-haproxy -l service-selector -d 'Only Services with these labels' -r -f
complete -c nodegate-haproxy -l node-selector -d 'Only Nodes with these labels' -r -f
complete -c nodegate-haproxy -l publish -d 'Which Services are published. all: every one that has ports on nodes; annotated: those with nodegate.io/haproxy-publish: true, or with our --load-balancer-class' -r -f -a "all\t''
annotated\t''"
complete -c nodegate-haproxy -l load-balancer-class -d 'The loadBalancerClass that is ours: of the Services that can have one only those with it are published. Without this setting: only those that have none' -r -f
complete -c nodegate-haproxy -l drain-on -d 'Which signals drain a node, by the same rules as the agent\'s --drain-on: unschedulable, deleting, taint:<key>, taint:<key>=<value>, taint:<key>:<effect>, label:<key>, label:<key>=<value>, condition:<Type>, condition:<Type>=<status>; or none alone' -r -f
complete -c nodegate-haproxy -l namespaces -d 'Only Services of these namespaces' -r -f
complete -c nodegate-haproxy -l bind -d 'Where frontends listen: addresses, or nothing for all of both families' -r -f
complete -c nodegate-haproxy -l reserved-ports -d 'Ports that no Service gets, besides those that the template binds' -r -f
complete -c nodegate-haproxy -l mode -d 'The mode of Services that ask for none' -r -f -a "tcp\t''
http\t''"
complete -c nodegate-haproxy -l balance -d 'The algorithm of Services that ask for none' -r -f
complete -c nodegate-haproxy -l address-types -d 'Which addresses of a node are used, the preferred type first' -r -f
complete -c nodegate-haproxy -l check-port -d 'nodegate\'s port on the nodes' -r -f
complete -c nodegate-haproxy -l check-path -d 'What a health check asks for; by drain=404 HAProxy itself gives a drained node nothing new, and keeps what is open there' -r -f
complete -c nodegate-haproxy -l check-interval -d 'The time between two checks of a node' -r -f
complete -c nodegate-haproxy -l agent-port -d 'nodegate\'s agent-check port on the nodes; 0 if it is not to be asked' -r -f
complete -c nodegate-haproxy -l local-check -d 'Who knows whether a node has an endpoint of a Service with externalTrafficPolicy: Local. auto: kube-proxy at the healthCheckNodePort, nodegate\'s /services/… where there is none; nodegate: always the latter' -r -f -a "auto\t''
nodegate\t''"
complete -c nodegate-haproxy -l max-removal -d 'How much may vanish at once, in percent of each Service\'s servers, or of the Services; what goes beyond it stays as it was' -r -f
complete -c nodegate-haproxy -l last-resort -d 'Which nodes serve when none is Ready. all: those that pass their check, drained or not, and if none does any; drained: the former alone; none: connections are refused' -r -f -a "all\t''
drained\t''
none\t''"
complete -c nodegate-haproxy -l listen -d 'The address and port of /metrics, /livez and /readyz; "none" opens none' -r -f
complete -c nodegate-haproxy -l log-format -d 'How log lines look on stderr: text or json' -r -f -a "text\t''
json\t''"
complete -c nodegate-haproxy -l log -d 'What is logged: a level (error, warn, info, debug, trace, off), or target=level,…' -r -f
complete -c nodegate-haproxy -l print -d 'Render once to stdout and end; nothing is written or reloaded'
complete -c nodegate-haproxy -l diff -d 'Show what would change in the --config file, as diff -u does, and end; nothing is printed if nothing would'
complete -c nodegate-haproxy -l explain -d 'Show which Service is published on which port, which is not and why, and the nodes; and end'
complete -c nodegate-haproxy -l once -d 'Apply once and end'
complete -c nodegate-haproxy -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodegate-haproxy -s V -l version -d 'Print version'
