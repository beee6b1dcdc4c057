# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_nodegate_global_optspecs
    string join \n node-name= listen-port= listen-address= agent-port= allow-from= balancers= traffic-port= metrics-addr= max-connections= stale-after= on-stale= state-dir= drain-on= startup-grace= shutdown-grace= default-checks= checks= on-demand= check= watch-service= http-check= tcp-check= host-root= conditions= log-format= log= h/help V/version
end

function __fish_nodegate_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_nodegate_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_nodegate_using_subcommand
    set -l cmd (__fish_nodegate_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c nodegate -n "__fish_nodegate_needs_command" -l node-name -d 'The Node this agent runs on: the Downward API field spec.nodeName. Without it every /health answers 500' -r -f
complete -c nodegate -n "__fish_nodegate_needs_command" -l listen-port -d 'The TCP port of the HTTP server' -r -f
complete -c nodegate -n "__fish_nodegate_needs_command" -l listen-address -d 'The address of the HTTP server; "::" means all addresses of both families' -r -f
complete -c nodegate -n "__fish_nodegate_needs_command" -l agent-port -d 'The TCP port of the responder for HAProxy\'s agent-check, on the same address; 0 turns it off' -r -f
complete -c nodegate -n "__fish_nodegate_needs_command" -l allow-from -d 'Which clients are answered, on --listen-port and on --agent-port: networks and addresses of both families, e.g. 10.0.0.0/24,192.168.1.7; empty means everybody. Connections of others are closed before a byte is read. Those from the node itself are always answered: the kubelet\'s probes come from there' -r -f
complete -c nodegate -n "__fish_nodegate_needs_command" -l balancers -d 'Whose questions count for "told" (nodegate wait): networks and addresses as --allow-from has them; empty means everybody\'s, a monitor\'s like a load balancer\'s' -r -f
complete -c nodegate -n "__fish_nodegate_needs_command" -l traffic-port -d 'The ports at which processes on this host, such as an ingress on the host\'s network, take the traffic of clients: nodegate wait --for released waits until no connection to them is left; up to 16' -r -f
complete -c nodegate -n "__fish_nodegate_needs_command" -l metrics-addr -d 'A second address of the HTTP server, which then is the only one that answers /metrics, /status.json and / (the page); it answers all other paths, too. --allow-from does not apply to it' -r -f
complete -c nodegate -n "__fish_nodegate_needs_command" -l max-connections -d 'How many connections may be open at once, on each port by itself; above that the one idle for longest is closed' -r -f
complete -c nodegate -n "__fish_nodegate_needs_command" -l stale-after -d 'The cache is stale when there was no proof for this long that it follows the API server' -r -f
complete -c nodegate -n "__fish_nodegate_needs_command" -l on-stale -d 'What a stale cache means: ready fails open; keep-drain fails open but holds the last known drain signal; not-ready fails closed' -r -f -a "ready\t''
keep-drain\t''
not-ready\t''"
complete -c nodegate -n "__fish_nodegate_needs_command" -l state-dir -d 'Where to keep what is known of the node, in a file of a few kB: an agent that crashes and starts again while no API server answers still knows it. The directory must be there, be writable, and be no other agent\'s' -r -f -a "(__fish_complete_directories)"
complete -c nodegate -n "__fish_nodegate_needs_command" -l drain-on -d 'Which signals drain: unschedulable, deleting, taint:<key>, taint:<key>=<value>, taint:<key>:<effect>, label:<key>, label:<key>=<value>, condition:<Type>, condition:<Type>=<status>; or none alone' -r -f
complete -c nodegate -n "__fish_nodegate_needs_command" -l startup-grace -d 'How long to wait for the first answer of the API server before listening without it' -r -f
complete -c nodegate -n "__fish_nodegate_needs_command" -l shutdown-grace -d 'How long requests in flight may take after SIGTERM' -r -f
complete -c nodegate -n "__fish_nodegate_needs_command" -l default-checks -d 'The checks of a request that names none' -r -f
complete -c nodegate -n "__fish_nodegate_needs_command" -l checks -d 'The local checks that run from the start, and whose failures the alerts tell of; others start when a request first names them, if --on-demand allows it' -r -f
complete -c nodegate -n "__fish_nodegate_needs_command" -l on-demand -d 'Which other local checks a request may start by naming them: all, none or a list. Those that it may not start fail with "Not enabled"' -r -f -a "all\t''
none\t''
LIST\t''"
complete -c nodegate -n "__fish_nodegate_needs_command" -l check -d 'How a local check runs: NAME:key=value,… with interval, timeout, rise, fall and what else the check has; may be repeated, and the environment variable takes several separated by ";"' -r -f
complete -c nodegate -n "__fish_nodegate_needs_command" -l watch-service -d 'A Service whose ready endpoints on this node are counted, as namespace/name; may be repeated, and the environment variable takes several separated by ",". Gives /services/<namespace>/<name> and the check service:<namespace>/<name>; each costs a watch, and the right to watch `EndpointSlices` in its namespace' -r -f
complete -c nodegate -n "__fish_nodegate_needs_command" -l http-check -d 'A check of your own that passes while the URL answers 2xx; requests name it with "http:" before the name. May be repeated, and the environment variable takes several separated by ";"' -r -f
complete -c nodegate -n "__fish_nodegate_needs_command" -l tcp-check -d 'A check of your own that passes while the port takes connections; requests name it with "tcp:" before the name. May be repeated, and the environment variable takes several separated by ";"' -r -f
complete -c nodegate -n "__fish_nodegate_needs_command" -l host-root -d 'Where the host\'s files are: in a container, where it has the host\'s / mounted' -r -f -a "(__fish_complete_directories)"
complete -c nodegate -n "__fish_nodegate_needs_command" -l conditions -d 'What `custom_conditions` fails on: condition types, each with the status that fails if that is not True' -r -f
complete -c nodegate -n "__fish_nodegate_needs_command" -l log-format -d 'How log lines look on stderr: text or json' -r -f -a "text\t''
json\t''"
complete -c nodegate -n "__fish_nodegate_needs_command" -l log -d 'What is logged: a level (error, warn, info, debug, trace, off), or target=level,…' -r -f
complete -c nodegate -n "__fish_nodegate_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodegate -n "__fish_nodegate_needs_command" -s V -l version -d 'Print version'
complete -c nodegate -n "__fish_nodegate_needs_command" -f -a "status" -d 'Shows what a running agent says; the exit code is the verdict'
complete -c nodegate -n "__fish_nodegate_needs_command" -f -a "wait" -d 'Waits until every load balancer has been told that the node is out, or back'
complete -c nodegate -n "__fish_nodegate_using_subcommand status" -l addr -d 'The agent to ask: HOST, HOST:PORT or http://HOST:PORT, where HOST is a name or an address. Without a port: that of the agent on this machine' -r -f
complete -c nodegate -n "__fish_nodegate_using_subcommand status" -s o -l output -d 'How to show it: text or json. Text has colour on a terminal, unless `NO_COLOR` is set' -r -f -a "text\t''
json\t''"
complete -c nodegate -n "__fish_nodegate_using_subcommand status" -l check -d 'Ask about these checks instead of the default ones, as /health?check= does; they are started if they don\'t run' -r -f
complete -c nodegate -n "__fish_nodegate_using_subcommand status" -l timeout -d 'How long all of it may take' -r -f
complete -c nodegate -n "__fish_nodegate_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodegate -n "__fish_nodegate_using_subcommand wait" -l for -d 'What to wait for: told, every balancer knows that the node is out; released, and no session is left; ready, every balancer knows that it is back' -r -f -a "told\t''
released\t''
ready\t''"
complete -c nodegate -n "__fish_nodegate_using_subcommand wait" -l addr -d 'The agent to ask: HOST, HOST:PORT or http://HOST:PORT, where HOST is a name or an address. Without a port: that of the agent on this machine' -r -f
complete -c nodegate -n "__fish_nodegate_using_subcommand wait" -l fall -d 'How many answers in a row take a server out: the largest `fall` of all balancers' -r -f
complete -c nodegate -n "__fish_nodegate_using_subcommand wait" -l rise -d 'How many bring it back: the largest `rise`' -r -f
complete -c nodegate -n "__fish_nodegate_using_subcommand wait" -l probers -d 'How many probers must go on asking; with fewer it is not known whether all were told' -r -f
complete -c nodegate -n "__fish_nodegate_using_subcommand wait" -l interval -d 'At which interval each balancer asks, if several share an address and don\'t name themselves' -r -f
complete -c nodegate -n "__fish_nodegate_using_subcommand wait" -l timeout -d 'How long to wait; if not set, 2 min, or as long as the slowest balancer needs' -r -f
complete -c nodegate -n "__fish_nodegate_using_subcommand wait" -s h -l help -d 'Print help (see more with \'--help\')'
