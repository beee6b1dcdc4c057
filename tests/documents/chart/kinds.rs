//! The kinds of settings: for what a program says that a setting takes, the pattern with which the chart checks it before
//! anything is installed, and values at its edges. A pattern may be narrower than the program, never wider.

/// What a kind of setting takes.
pub(crate) struct Kind {
    pub(crate) pattern: String,
    /// What is between the elements of a list; empty for a single value.
    pub(crate) separator: String,
    /// The maximum number of elements; 0 for any number.
    pub(crate) most: usize,
    /// Values that chart and program take.
    pub(crate) good: Vec<String>,
    /// Values that both refuse.
    pub(crate) bad: Vec<String>,
}

/// What a program says | values that stand alone | what is between elements | the maximum number of elements, and one with its
/// number | the pattern of an element | values that chart and program take | values that both refuse. `<names>` are the words
/// that the program lists; `-` stands for nothing, ` # ` is between values.
const KINDS: &str = r"
a list of up to 16 ports | - | , | 16 % | <port> | 1 # 65535 # 80,443 | 0 # 65536 # http # 80;81
a list of networks and addresses | - | , | - | (<ip>|<network>) | 0.0.0.0/0 # ::/0 # 10.0.0.5 # 10.0.0.0/32,fd00::7/128,::1 # 1:2:3:4:5:6:7:8,fe80::1:2 | example.com # 10.0.0.0/33 # 256.0.0.1 # ::/129 # 10.0.0 # 10.0.0.1/ # 1:2:3:4:5:6:7:8:9 # 10.0.0.1;10.0.0.2 # ::1::
a list of networks, | - | , | - | <network> | 10.0.0.0/8 # fd00::/8,10.1.0.0/16 | 10.0.0.5 # 10.0.0.0/33 # fd00::/129 # x/8
an IP address, e.g. | - | - | - | <ip> | :: # 0.0.0.0 # 10.0.0.7 # fd00::7 | localhost # 10.0.0.300 # [::] # 10.0.0.7:80
an IP address and a port | - | - | - | (<ip4>|\[<ip6>\]):<port> | [::]:25103 # 0.0.0.0:25104 # 10.0.0.7:25109 | 25004 # localhost:25004 # [::]:65536 # 0.0.0.0 # 10.0.0.7:http # ::1:25004
an address and a port | - | - | - | (<ip4>|\[<ip6>\]):<port> | [::]:25203 # 0.0.0.0:65534 # 10.0.0.7:25209 | 25004 # localhost:25004 # [::]:65536 # 0.0.0.0 # 10.0.0.7:http # ::1:25004
unschedulable, deleting, | none | , | - | <signal> | none # unschedulable,deleting # taint:a=b:NoExecute,taint:example.com/*,taint:a* # label:a.b/c=d,label:a= # condition:Drained=False,lifecycle # annotation:example.com/out=yes | cordon # unschedulable,none # taint: # taint:a:soon # label:-a # condition:A=true # annotation:* # taint:* # unschedulable=true # condition:Ready
condition types | - | , | - | <key><status> | DiskPressure # Mine=False,X=Unknown # a.b/C=True | A=true # A B # A= # =True # A,,B
namespace/name | - | , | 16 a/b% | <label>/<label> | a/b # 123/7 # ingress/router,ingress/other | router # a/b/c # A/b # a/ # a/-b
<name>=<url>, e.g. nginx | - | ; | - | <check>=http://<host>(:<port>)?(/[^; #]*)? | nginx=http://127.0.0.1:10254/healthz # a.B_c-1=http://[::1]/?a=b,c # a=http://x;b=http://y.z:80/ | nginx # =http://x/ # a=https://x/ # a b=http://x/ # a=http://x:0/ # a=http://x:70000/ # a=ftp://x
<name>=<host>:<port>, e.g. db | - | ; | - | <check>=<host>:<port> | db=127.0.0.1:5432 # mq=[::1]:1;x=db.example:65535 | db # db=127.0.0.1 # db=x:0 # db=x:65536 # =x:1 # a/b=x:1
<check>:<key> | - | ; | - | <checks> | kubelet:interval=100ms,timeout=5m,rise=1,fall=100 # apiserver:url=https://10.0.0.5:6443,exclude=etcd:etcd-readiness;network:rise=3 # disk_pressure:paths=/:/data,limits=/var/lib/kubelet=5%/0.5%:/data=1Gi # container_runtime:socket=unix:///run/crio/crio.sock;filesystem_ro:paths=/ # kube_proxy:deployed=yes,url=http://127.0.0.1:10256/healthz # network:name=a.example,nameservers=off,gateways=neighbour # kubelet:url=https://127.0.0.1:10250/healthz,ca=/etc/ca.crt # okd_router_1936:url=http://127.0.0.1:1936/healthz/ready | kubelet # bogus:interval=1s # kubelet:interval=99ms # kubelet:timeout=6m # kubelet:fall=0 # kubelet:period=1s # kube_proxy:deployed=no # network:gateways=answer # apiserver:url=http://x # filesystem_ro:paths=data # http:nowhere:rise=0
all, none or a list of checks | all|none | , | - | (<names>|(http|tcp):<check>) | all # none # kubelet,network | node_ready # kubelet,bogus
a list of node_ready | - | , | - | (<names>|(http|tcp):<check>|service:<label>/<label>) | node_ready # kubelet,network | ready # node_ready;kubelet
a list of okd_router_1936 | - | , | - | (<names>|(http|tcp):<check>) | kubelet # network,disk_pressure | node_ready # kubelet,bogus
a level ( | - | , | - | (<level>|[a-z_:]+=<level>) | debug # off # warn,nodegate_server=debug,nodegate_agent::agent=trace | loud # info=,x # debug;info # nodegate
timeouts from | - | , | - | (<names>)=<timeout> | connect=1ms # client=576h,server=10m,tunnel=1h # client-fin=30s | connect # connect=0s # connect=577h # idle=3s # connect=3
at most 32 names of namespaces | - | , | 32 n% | <label> | shop # a,123 | Shop # a/b # a_b
a label selector | - | - | - | <selector> | role=ingress,zone!=b,tier in (web,edge) # !spare # a.b/c==d,e notin (f) # x | a b # a=b=c # a in b # =x # a in (b # ,
a loadBalancerClass | - | - | - | (<domain>/)?<label> | example.com/haproxy # internal | a b # a//b # -a # /a
a list of IP addresses of this machine | - | , | - | <ip> | 10.0.0.5,10.0.0.100 # :: # fd00::5 | web # web=10.0.0.1 # 10.0.0.0/8 # 10.0.0.300
a list of namespaces with ports | - | , | - | (\*|<label>)=<port>(-<port>)? | shop=443,shop=8000-8099,*=30000-32767 # a=1-65535 | shop # shop=0 # shop=1-65536 # *=x # a/b=80
NAME=PORT:NODEPORT | - | ; | - | <label>=<port>:<port>(@<selector>)?(\?[-A-Za-z0-9_:/.]+(,[-A-Za-z0-9_:/.]+)*)? | https=443:443@node-role.kubernetes.io/infra?node_ready,okd_router_1936 # a=1:65535;b=2:2 # a=80:80?http:x | a # a=0:80 # a=80 # A=80:80 # a=80:80@ # a=80:80@x y # a=80:80?b c # a=80:65536
agent, tcp or none, and perhaps | - | - | - | (agent|tcp|none)(:<pace>(,<pace>)*)? | agent # tcp:interval=100ms # none # agent:port=25001,interval=5m | http # agent:port=0 # agent:interval=99ms # tcp:fall=2 # agent:x=1 # tcp:interval=6m
a list of IP addresses and host names | - | , | - | (<ip>|(<label>\.)*[a-z]([-a-z0-9]{0,61}[a-z0-9])?) | 203.0.113.10,lb.example.com # fd00::1 # lb | web=10.0.0.1 # a..b # Lb # lb:443 # 10.0.0
a name, e.g. | - | - | - | <label> | nodegate-haproxy # a # 1 | A # a_b # -a # a/b
";

/// The parts of patterns, which name them in angle brackets, as parts name others.
pub(crate) fn parts() -> Vec<(&'static str, String)> {
    let h = "[0-9A-Fa-f]{1,4}";
    let mut ip6 = vec![format!("({h}:){{7}}{h}"), format!("({h}:){{1,7}}:"), format!(":((:{h}){{1,7}}|:)")];
    ip6.extend((1..=6).map(|after| format!("({h}:){{1,{}}}(:{h}){{1,{after}}}", 7 - after)));
    vec![
        ("byte", range(0, 255)),
        ("ip4", r"<byte>(\.<byte>){3}".to_owned()),
        ("ip6", format!("({})", ip6.join("|"))),
        ("ip", "(<ip4>|<ip6>)".to_owned()),
        ("network", format!("(<ip4>/{}|<ip6>/{})", range(0, 32), range(0, 128))),
        ("port", range(1, 65_535)),
        ("label", "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?".to_owned()),
        ("domain", r"<label>(\.<label>)*".to_owned()),
        ("host", r"(<ip4>|\[<ip6>\]|<domain>)".to_owned()),
        ("url", "http://<host>(:<port>)?(/[^,; #]*)?".to_owned()),
        ("name", "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?".to_owned()),
        ("key", "(<domain>/)?<name>".to_owned()),
        ("value", "(<name>)?".to_owned()),
        // Any condition but Ready.
        ("type", "([A-QS-Za-z0-9]|R[A-Za-df-z0-9])([-A-Za-z0-9_.]{0,60}[A-Za-z0-9])?".to_owned()),
        ("status", "(=(True|False|Unknown))?".to_owned()),
        ("effect", "(:(NoSchedule|PreferNoSchedule|NoExecute))?".to_owned()),
        ("demand", r"(<key>(==?<value>|!=<value>| (in|notin) \(<value>(,<value>)*\))?|!<key>)".to_owned()),
        ("selector", "<demand>(,<demand>)*".to_owned()),
        ("check", "[-A-Za-z0-9_.]{1,63}".to_owned()),
        ("path", "/[^:,;= ]*".to_owned()),
        ("paths", "<path>(:<path>)*".to_owned()),
        ("share", r"([0-9]{1,2}(\.[0-9]{1,3})?%|[0-9]{1,15}([KMGTPE]i|[kMGTPE])?)".to_owned()),
        ("limit", "<path>=<share>(/<share>)?".to_owned()),
        (
            "timing",
            format!(
                "interval={}|timeout={}|(rise|fall)={}",
                duration(100, 3_600_000),
                duration(10, 300_000),
                range(1, 100)
            ),
        ),
        ("checks", check_settings()),
        ("timeout", duration(1, 24 * 86_400_000)),
        ("pace", format!("(port=<port>|interval={})", duration(100, 300_000))),
        ("level", "(error|warn|info|debug|trace|off)".to_owned()),
        (
            "signal",
            "(unschedulable|deleting|lifecycle|taint:<key>(=<value>)?<effect>\
             |taint:(<domain>/|(<domain>/)?[A-Za-z0-9][-A-Za-z0-9_.]{0,62})\\*(=<value>)?<effect>|label:<key>(=<value>)?\
             |annotation:<key>(=[!-+--~]{0,100})?|condition:(<domain>/<name>|<type>)<status>)"
                .to_owned(),
        ),
    ]
}

/// Returns the pattern of the numbers from `low` to `high`, without leading zeros.
fn range(low: u64, high: u64) -> String {
    fn same_length(low: &[u8], high: &[u8]) -> Vec<String> {
        let Some(((first, low), (last, high))) = low.split_first().zip(high.split_first()) else {
            return vec![String::new()];
        };
        let begin = |digit: u8, rest: Vec<String>| {
            rest.into_iter().map(move |rest| format!("{}{rest}", char::from(digit)))
        };
        let (zeros, nines) = (vec![b'0'; low.len()], vec![b'9'; low.len()]);
        if first == last {
            return begin(*first, same_length(low, high)).collect();
        }
        let (from, to) = (first + u8::from(low != zeros), last - u8::from(high != nines));
        let mut all = Vec::new();
        if from > *first {
            all.extend(begin(*first, same_length(low, &nines)));
        }
        if from <= to {
            let any = if low.is_empty() { String::new() } else { format!("[0-9]{{{}}}", low.len()) };
            all.push(format!("[{}-{}]{any}", char::from(from), char::from(to)));
        }
        if to < *last {
            all.extend(begin(*last, same_length(&zeros, high)));
        }
        all
    }
    let mut all = Vec::new();
    let (shortest, longest) = (low.to_string().len(), high.to_string().len());
    for length in shortest..=longest {
        let least = if length == 1 { 0 } else { 10_u64.pow(u32::try_from(length).unwrap() - 1) };
        let most = 10_u64.pow(u32::try_from(length).unwrap()) - 1;
        let [from, to] = [low.max(least), high.min(most)].map(|number| number.to_string());
        all.extend(same_length(from.as_bytes(), to.as_bytes()));
    }
    format!("({})", all.join("|"))
}

/// Returns the pattern of the durations from `low` to `high` milliseconds, with one unit each.
fn duration(low: u64, high: u64) -> String {
    let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
    let units = units.into_iter().filter(|(_, millis)| high >= *millis);
    let all = units.map(|(unit, millis)| format!("{}{unit}", range(low.div_ceil(millis), high / millis)));
    format!("({})", all.collect::<Vec<_>>().join("|"))
}

/// Returns the pattern of the settings of single checks.
fn check_settings() -> String {
    let own = [
        ("okd_router_1936", "url=<url>"),
        ("kubelet", r"url=(<url>|https://(<ip4>|\[<ip6>\])(:<port>)?(/[^,; #]*)?)|ca=<paths>"),
        ("apiserver", "url=https://<host>(:<port>)?/?|exclude=<check>(:<check>)*"),
        ("kube_proxy", "url=<url>|deployed=(auto|yes)"),
        ("container_runtime", "socket=(unix://)?<path>"),
        ("filesystem_ro", "paths=<paths>"),
        ("disk_pressure", "paths=<paths>|limits=<limit>(:<limit>)*"),
        ("network", r"name=(\.|<domain>)|nameservers=(any|off)|gateways=(neighbour|off)"),
        ("http:<check>", "header=[A-Za-z][-A-Za-z0-9]*:[^,;]*"),
        ("tcp:<check>", "rise=1"),
    ];
    let all = own.map(|(check, more)| format!("{check}:(<timing>|{more})(,(<timing>|{more}))*"));
    format!("({})", all.join("|"))
}

/// Returns the kind of the settings of which a program says this.
pub(crate) fn of(takes: &str) -> Kind {
    let rest = takes.strip_prefix("takes ").unwrap_or(takes);
    let single = |pattern: &str, good: Vec<String>, bad: Vec<String>| Kind {
        pattern: format!("^({pattern})$"),
        separator: String::new(),
        most: 0,
        good,
        bad,
    };
    if let Some(row) = KINDS.trim().lines().find(|row| rest.starts_with(row.split_once(" | ").unwrap().0)) {
        let cells: Vec<_> = row.split(" | ").map(|cell| if cell == "-" { "" } else { cell }).collect();
        let [_, alone, separator, most, element, good, bad] = cells[..] else { panic!("{row}") };
        let names = takes
            .rsplit_once(" a list of ")
            .or(takes.rsplit_once("there are "))
            .map_or("", |(_, names)| names);
        let element = element.replace("<names>", &names.replace(", ", "|"));
        let each = if separator.is_empty() { element } else { format!("{element}({separator}{element})*") };
        let pattern = if alone.is_empty() { each } else { format!("{alone}|{each}") };
        let texts = |text: &str| text.split(" # ").map(str::to_owned).collect();
        let mut kind = Kind { separator: separator.to_owned(), ..single(&pattern, texts(good), texts(bad)) };
        if let Some((most, one)) = most.split_once(' ') {
            kind.most = most.parse().unwrap();
            let many =
                |count| (1..=count).map(|number| one.replace('%', &number.to_string())).collect::<Vec<_>>();
            kind.good.push(many(kind.most).join(separator));
            kind.bad.push(many(kind.most + 1).join(separator));
        }
        return kind;
    }
    let numbers: Vec<u64> =
        rest.split(|c: char| !c.is_ascii_digit()).filter_map(|text| text.parse().ok()).collect();
    if let Some((low, high)) =
        rest.strip_prefix("a duration from ").and_then(|rest| rest.split_once(',')?.0.split_once(" to "))
    {
        let [low, high] = [low, high]
            .map(|bound| humantime::parse_duration(bound).unwrap().as_millis())
            .map(|millis| u64::try_from(millis).unwrap());
        let millis = |millis: u64| format!("{millis}ms");
        let mut bad = ["15", "soon", "-3s", "25h", "1d1"].map(str::to_owned).to_vec();
        bad.extend([Some(high + 1), low.checked_sub(1)].into_iter().flatten().map(millis));
        let good =
            vec![millis(low), millis(high), format!("{}s", high / 1000), format!("{}m", high / 60_000)];
        return single(&duration(low, high), good, bad);
    }
    if let [mut low, high, ..] = numbers[..] {
        // The port for none.
        low *= u64::from(!rest.contains("or 0 for"));
        let unit = if rest.contains('%') { "%" } else { "" };
        let text = |number: u64| format!("{number}{unit}");
        let mut bad = vec![text(high + 1), format!("1{}", text(high)), "x".to_owned(), format!("-1{unit}")];
        bad.extend(low.checked_sub(1).map(text));
        return single(
            &format!("{}{unit}", range(low, high)),
            [low, high, low.midpoint(high)].map(text).into(),
            bad,
        );
    }
    let words: Vec<_> = rest.split([',', ' ']).filter(|word| !word.is_empty() && *word != "or").collect();
    let plain = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    assert!(words.len() > 1 && words.iter().all(plain), "no kind for: {takes}");
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    single(&words.join("|"), owned(&words), owned(&["open", "x"]))
}
