# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_kubectl_nodegate_global_optspecs
    string join \n l/selector= w/watch o/output= kubeconfig= context= n/namespace= port= via= request-timeout= h/help V/version
end

function __fish_kubectl_nodegate_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_kubectl_nodegate_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_kubectl_nodegate_using_subcommand
    set -l cmd (__fish_kubectl_nodegate_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_needs_command" -s l -l selector -d 'Only nodes with these labels, as kubectl takes them: pool=edge,zone!=b' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_needs_command" -s o -l output -d 'How it is shown' -r -f -a "table\t''
wide\t''
json\t''"
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_needs_command" -l kubeconfig -d 'The kubeconfig file' -r -F
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_needs_command" -l context -d 'The kubeconfig\'s context' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_needs_command" -s n -l namespace -d 'The namespace of the agents\' pods, for the proxy' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_needs_command" -l port -d 'The port at which agents answer /status.json; another one if they have --metrics-addr' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_needs_command" -l via -d 'How agents are reached: at the node\'s own address, through the API server\'s proxy of their pods, or the first that works' -r -f -a "auto\t''
node\t''
proxy\t''"
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_needs_command" -l request-timeout -d 'How long an agent may take for its answer' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_needs_command" -s w -l watch -d 'Goes on: on a terminal the table is kept up to date, elsewhere each change is a line'
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_needs_command" -s V -l version -d 'Print version'
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_needs_command" -a "wait" -d 'Waits until every balancer of these nodes has been told'
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_needs_command" -a "drain" -d 'Takes nodes out one by one: cordons, waits until every balancer has been told, and drains with kubectl'
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_needs_command" -a "uncordon" -d 'Brings nodes back, and waits until every balancer has been told'
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand wait" -l for -d 'What is waited for: told that the node is out, released (told, and no session is left), or ready (told that it is back)' -r -f -a "told\t''
released\t''
ready\t''"
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand wait" -l fall -d 'How many answers in a row make a balancer take a node out' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand wait" -l rise -d 'How many answers in a row make it take a node back' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand wait" -l probers -d 'How many balancers there must be for each node; without it at least one' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand wait" -l interval -d 'At which interval each balancer asks, where several stand behind one address and do not name themselves' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand wait" -l timeout -d 'How long balancers may take; without it two minutes, or as long as the slowest one needs' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand wait" -l kubeconfig -d 'The kubeconfig file' -r -F
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand wait" -l context -d 'The kubeconfig\'s context' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand wait" -s n -l namespace -d 'The namespace of the agents\' pods, for the proxy' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand wait" -l port -d 'The port at which agents answer /status.json; another one if they have --metrics-addr' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand wait" -l via -d 'How agents are reached: at the node\'s own address, through the API server\'s proxy of their pods, or the first that works' -r -f -a "auto\t''
node\t''
proxy\t''"
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand wait" -l request-timeout -d 'How long an agent may take for its answer' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand wait" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand drain" -l for -d 'What is waited for before pods are evicted: told that the node is out, or released: told, and no session is left' -r -f -a "told\t''
released\t''"
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand drain" -l min-ready -d 'How many other nodes must be Ready, by what their agents say and not as a guess; with fewer a node is not taken out' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand drain" -l fall -d 'How many answers in a row make a balancer take a node out' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand drain" -l probers -d 'How many balancers there must be for each node; without it at least one' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand drain" -l interval -d 'At which interval each balancer asks, where several stand behind one address and do not name themselves' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand drain" -l timeout -d 'How long balancers may take; without it two minutes, or as long as the slowest one needs' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand drain" -l kubeconfig -d 'The kubeconfig file' -r -F
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand drain" -l context -d 'The kubeconfig\'s context' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand drain" -s n -l namespace -d 'The namespace of the agents\' pods, for the proxy' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand drain" -l port -d 'The port at which agents answer /status.json; another one if they have --metrics-addr' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand drain" -l via -d 'How agents are reached: at the node\'s own address, through the API server\'s proxy of their pods, or the first that works' -r -f -a "auto\t''
node\t''
proxy\t''"
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand drain" -l request-timeout -d 'How long an agent may take for its answer' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand drain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand uncordon" -l rise -d 'How many answers in a row make a balancer take a node back' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand uncordon" -l probers -d 'How many balancers there must be for each node; without it at least one' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand uncordon" -l interval -d 'At which interval each balancer asks, where several stand behind one address and do not name themselves' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand uncordon" -l timeout -d 'How long balancers may take; without it two minutes, or as long as the slowest one needs' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand uncordon" -l kubeconfig -d 'The kubeconfig file' -r -F
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand uncordon" -l context -d 'The kubeconfig\'s context' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand uncordon" -s n -l namespace -d 'The namespace of the agents\' pods, for the proxy' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand uncordon" -l port -d 'The port at which agents answer /status.json; another one if they have --metrics-addr' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand uncordon" -l via -d 'How agents are reached: at the node\'s own address, through the API server\'s proxy of their pods, or the first that works' -r -f -a "auto\t''
node\t''
proxy\t''"
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand uncordon" -l request-timeout -d 'How long an agent may take for its answer' -r -f
complete -c kubectl-nodegate -n "__fish_kubectl_nodegate_using_subcommand uncordon" -s h -l help -d 'Print help (see more with \'--help\')'
