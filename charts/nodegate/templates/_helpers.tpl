{{/*
The components are agent, haproxy and eviction-gate. Most helpers take a list: the root, a component, and what
stands behind the name of the object.
*/}}

{{/* The name of the agent's objects, by which those of the other components begin. */}}
{{- define "nodegate.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The name of an object. */}}
{{- define "nodegate.name" -}}
{{ include "nodegate.fullname" (index . 0) }}{{ if ne (index . 1) "agent" }}-{{ index . 1 }}{{ end }}
{{- if gt (len .) 2 }}{{ index . 2 }}{{ end }}
{{- end }}

{{/* The label app.kubernetes.io/name of a component, of its name: alerts, dashboards and kubectl nodegate know it. */}}
{{- define "nodegate.app" -}}
nodegate{{ if ne . "agent" }}-{{ . }}{{ end }}
{{- end }}

{{/* The labels that select the pods of a component. A workload's selector can't be changed later. */}}
{{- define "nodegate.selector" -}}
app.kubernetes.io/name: {{ include "nodegate.app" (index . 1) }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* The labels of all objects of a component. None has the version: it would differ from the image's. */}}
{{- define "nodegate.labels" -}}
{{ include "nodegate.selector" . }}
app.kubernetes.io/part-of: nodegate
{{- with (index . 0).Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The beginning of an object's metadata. */}}
{{- define "nodegate.metadata" -}}
name: {{ include "nodegate.name" . }}
labels:
  {{- include "nodegate.labels" . | nindent 2 }}
{{- end }}

{{/* The name of a component's ServiceAccount. */}}
{{- define "nodegate.account" -}}
{{- $root := index . 0 -}}
{{ $root.Values.serviceAccount.name | default (include "nodegate.fullname" $root) }}{{ if ne (index . 1) "agent" }}-{{ index . 1 }}{{ end }}
{{- end }}

{{/* A component's ServiceAccount, unless it is managed elsewhere. */}}
{{- define "nodegate.serviceAccount" -}}
{{- $root := index . 0 }}
{{- if $root.Values.serviceAccount.create }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "nodegate.account" . | toYaml }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "nodegate.labels" . | nindent 4 }}
  {{- with $root.Values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
# The pods mount the token explicitly; no other pod of this account gets one by default.
automountServiceAccountToken: false
{{- end }}
{{- end }}

{{/* A role without its rules, of (dict "root" $ "component" … "suffix" … "namespace" …): without a namespace a ClusterRole. */}}
{{- define "nodegate.role" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ if .namespace }}Role{{ else }}ClusterRole{{ end }}
metadata:
  {{- include "nodegate.metadata" (list .root .component (.suffix | default "")) | nindent 2 }}
  {{- with .namespace }}
  namespace: {{ toYaml . }}
  {{- end }}
{{- end }}

{{/* The binding of that role: to the component's ServiceAccount, or to the user in "user". */}}
{{- define "nodegate.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ if .namespace }}RoleBinding{{ else }}ClusterRoleBinding{{ end }}
metadata:
  {{- include "nodegate.metadata" (list .root .component (printf "%s%s" (.suffix | default "") (.user | default ""))) | nindent 2 }}
  {{- with .namespace }}
  namespace: {{ toYaml . }}
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ if .namespace }}Role{{ else }}ClusterRole{{ end }}
  name: {{ include "nodegate.name" (list .root .component (.suffix | default "")) }}
subjects:
  {{- if .user }}
  - apiGroup: rbac.authorization.k8s.io
    kind: User
    name: nodegate{{ .user }}
  {{- else }}
  - kind: ServiceAccount
    name: {{ include "nodegate.account" (list .root .component) | toYaml }}
    namespace: {{ .root.Release.Namespace }}
  {{- end }}
{{- end }}

{{/* An image, of (dict "image" … "root" $): a digest takes precedence over a tag. */}}
{{- define "nodegate.image" -}}
{{- with .image -}}
image: {{ .digest | empty | ternary (printf "%s:%s" .repository (.tag | default $.root.Chart.AppVersion)) (printf "%s@%s" .repository .digest) | toYaml }}
imagePullPolicy: {{ .pullPolicy }}
{{- end }}
{{- end }}

{{/* The rights of every container within its pod: none. */}}
{{- define "nodegate.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* What a value and its setting of files/settings.json make of the variable: text, empty if it is not set. */}}
{{- define "nodegate.text" -}}
{{- $value := index . 0 -}}
{{- if kindIs "slice" $value }}{{ join (default "," (index . 1).separator) $value }}
{{- else if not (kindIs "invalid" $value) }}{{ $value }}{{ end }}
{{- end }}

{{/* Settings as variables, of (dict "root" $ "of" … "settings" …): what is null or empty is not set. */}}
{{- define "nodegate.env" -}}
{{- $known := get (.root.Files.Get "files/settings.json" | fromJson) .of }}
{{- range $key, $value := .settings }}
{{- with include "nodegate.text" (list $value (get $known $key)) }}
- name: {{ (get $known $key).variable }}
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* The milliseconds of a duration. */}}
{{- define "nodegate.millis" -}}
{{- mul (regexFind "^[0-9]+" . | int64) (get (dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000) (regexFind "[a-z]+" .)) }}
{{- end }}

{{/* The port at the end of an address. */}}
{{- define "nodegate.portOf" -}}
{{ regexFind "[0-9]+$" (toString .) }}
{{- end }}

{{/* The port of /health. */}}
{{- define "nodegate.port" -}}
{{ .Values.settings.listenPort | default 25001 }}
{{- end }}

{{/* The ports of /metrics. */}}
{{- define "nodegate.metricsPort" -}}
{{ include "nodegate.portOf" (.Values.settings.metricsAddr | default (include "nodegate.port" .)) }}
{{- end }}

{{- define "nodegate.haproxy.port" -}}
{{ include "nodegate.portOf" .Values.haproxy.settings.listen }}
{{- end }}

{{- define "nodegate.gate.healthPort" -}}
{{ include "nodegate.portOf" (.Values.evictionGate.settings.healthListen | default "25006") }}
{{- end }}

{{/* Values that a program would refuse at its start, by files/settings.json, all of them at once, in the program's words. */}}
{{- define "nodegate.checkSettings" -}}
{{- $wrong := list }}
{{- $own := list }}
{{- range .Values.extraEnv }}{{ $own = append $own .name }}{{ end }}
{{- $all := dict "settings" .Values.settings "haproxy.settings" .Values.haproxy.settings "evictionGate.settings" .Values.evictionGate.settings }}
{{- $file := .Files.Get "files/settings.json" | fromJson }}
{{- range $of, $known := omit $file "parts" }}
{{- range $key, $value := get $all $of }}
{{- $setting := get $known $key }}
{{- $text := "" }}
{{- $pattern := "" }}
{{- if $setting }}
{{- $text = include "nodegate.text" (list $value $setting) }}
{{- $pattern = $setting.pattern }}
{{- range until 6 }}{{/* Parts name other parts. */}}
{{- range $name, $part := $file.parts }}{{ $pattern = replace (printf "<%s>" $name) $part $pattern }}{{ end }}
{{- end }}
{{- end }}
{{- $names := regexFindAll "[$][(][^)]*[)]" $text -1 }}
{{- if not $setting }}
{{- $wrong = append $wrong (printf "%s.%s: no such setting; takes %s" $of $key (keys $known | sortAlpha | join ", ")) }}
{{- else if and (kindIs "slice" $value) (not $setting.separator) }}
{{- $wrong = append $wrong (printf "%s.%s: takes no list: %s" $of $key $setting.takes) }}
{{- else if and $names (eq $of "settings") }}
{{- range $names }}
{{- if not (has (trimAll "$()" .) $own) }}
{{- $wrong = append $wrong (printf "%s.%s: %q names %s, which is not in extraEnv" $of $key $text .) }}
{{- end }}
{{- end }}
{{- else if or (gt (len (splitList ($setting.separator | default "\n") $text)) (default 999 $setting.most | int)) (and $text (not (mustRegexMatch $pattern $text))) (and (kindIs "slice" $value) (has "" $value)) }}
{{- $wrong = append $wrong (printf "%s.%s: %q: %s" $of $key $text $setting.takes) }}
{{- end }}
{{- end }}
{{- end }}
{{- with $wrong }}{{ fail (join "\n" .) }}{{ end }}
{{- end }}

{{/* The text of a setting, of (list root "settings" "httpCheck"). */}}
{{- define "nodegate.setting" -}}
{{- $values := (index . 0).Values }}
{{- range splitList "." (index . 1) }}{{ $values = get $values . }}{{ end }}
{{- include "nodegate.text" (list (get $values (index . 2)) (get (get ((index . 0).Files.Get "files/settings.json" | fromJson) (index . 1)) (index . 2))) }}
{{- end }}

{{/* The thousandths of a quantity such as 100m or 64Mi, or nothing. */}}
{{- define "nodegate.quantity" -}}
{{- $units := dict "m" 0.001 "" 1.0 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 }}
{{- mulf (regexFind "^[0-9.]+" (toString .) | float64) 1000 (get $units (regexFind "[a-zA-Z]*$" (toString .))) }}
{{- end }}

{{/* Combinations of values that the chart rejects, for which a schema has no readable error. */}}
{{- define "nodegate.check" -}}
{{- include "nodegate.checkSettings" . }}
{{- range $what, $name := dict "the objects' name" (include "nodegate.fullname" .) "the namespace" .Release.Namespace }}
{{- if or (not (regexMatch "^[a-z][-a-z0-9]*$" $name)) (has $name (list "true" "false" "null" "yes" "no" "on" "off" "y" "n")) }}
{{- fail (printf "%s %q: takes a-z, 0-9 and -, beginning with a letter, and no word of YAML%s" $what $name (hasPrefix "the n" $what | ternary "" "; set fullnameOverride")) }}
{{- end }}
{{- end }}
{{- $values := .Values }}
{{- $gate := .Values.evictionGate }}
{{- if and $gate.caBundle (not $gate.tlsSecret) }}
{{- fail "evictionGate.caBundle needs evictionGate.tlsSecret: the gate writes the CA of its own certificate itself" }}
{{- end }}
{{- if and $gate.caBundle (not (regexMatch "-----BEGIN CERTIFICATE-----\\s" (b64dec $gate.caBundle))) }}
{{- fail "evictionGate.caBundle: takes certificates in PEM form, as base64: base64 -w0 <ca.crt" }}
{{- end }}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}
{{- fail "serviceAccount.create=false needs serviceAccount.name: the name of an account that exists" }}
{{- end }}
{{- if .Values.openshift.enabled }}
{{- range $value, $why := dict "hostSignals" "allows no hostPath" "hostChecks" "allows no hostPath" "haproxy" "does not allow HAProxy's user" }}
{{- if (get $values $value).enabled }}
{{- fail (printf "%s.enabled and openshift.enabled do not go together: the SCC hostnetwork-v2 %s" $value $why) }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.updateStrategy }}
{{- $surge := toString ((.rollingUpdate).maxSurge | default 0) }}
{{- $unavailable := toString (kindIs "invalid" (.rollingUpdate).maxUnavailable | ternary 1 (.rollingUpdate).maxUnavailable) }}
{{- if and (eq .type "RollingUpdate") (eq (trimSuffix "%" $surge | eq "0") (trimSuffix "%" $unavailable | eq "0")) }}
{{- fail (printf "updateStrategy.rollingUpdate: one of maxSurge (%s) and maxUnavailable (%s) must be 0, and the other not" $surge $unavailable) }}
{{- end }}
{{- end }}
{{- $own := list "app.kubernetes.io/name" "app.kubernetes.io/component" "app.kubernetes.io/part-of" }}
{{- range $value, $labels := dict "commonLabels" .Values.commonLabels "podLabels" .Values.podLabels "prometheus.labels" .Values.prometheus.labels }}
{{- range $key, $_ := $labels }}
{{- if has $key $own }}
{{- fail (printf "%s: the chart itself sets the label %s" $value $key) }}
{{- end }}
{{- if and (ne $value "commonLabels") (hasKey ($values.commonLabels | default dict) $key) }}
{{- fail (printf "%s: the label %s is in commonLabels, too" $value $key) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $key, $_ := .Values.podAnnotations }}
{{- if has $key (list "kubectl.kubernetes.io/default-container" "cluster-autoscaler.kubernetes.io/enable-ds-eviction" "openshift.io/required-scc") }}
{{- fail (printf "podAnnotations: the chart itself sets the annotation %s" $key) }}
{{- end }}
{{- end }}
{{- range .Values.extraEnv }}
{{- if regexMatch "^(NODEGATE_.*|NODE_NAME|LISTEN_PORT|RUST_LOG|KUBECONFIG)$" .name }}
{{- fail (printf "extraEnv: the chart itself sets %s: see settings" .name) }}
{{- end }}
{{- end }}
{{- $names := list }}
{{- range concat (list (dict "name" "state") (dict "name" "kubeconfig") (dict "name" "host") (dict "name" "host-signals")) .Values.extraVolumes }}{{ $names = append $names .name }}{{ end }}
{{- $mounts := list "/var/lib/nodegate" "/etc/nodegate/kubeconfig" "/host" "/run/nodegate" }}
{{- range .Values.extraVolumeMounts }}
{{- if not (has .name $names) }}
{{- fail (printf "extraVolumeMounts: there is no volume %s in extraVolumes" .name) }}
{{- end }}
{{- $mounts = append $mounts (trimSuffix "/" .mountPath) }}
{{- end }}
{{- $variables := list }}
{{- range .Values.extraEnv }}{{ $variables = append $variables .name }}{{ end }}
{{- $refs := list }}
{{- range $value := list "defaultChecks" "backgroundChecks" "onDemand" "checkSettings" }}
{{- $refs = concat $refs (regexFindAll (eq $value "checkSettings" | ternary "(^|;)(http|tcp):[^:]+" "(^|,)(http|tcp|service):[^,]+") (include "nodegate.setting" (list $ "settings" $value)) -1) }}
{{- end }}
{{- $checks := list }}
{{- range $value, $kind := dict "httpCheck" "http:" "tcpCheck" "tcp:" }}
{{- range regexFindAll "(^|;)[^;=]+=" (include "nodegate.setting" (list $ "settings" $value)) -1 }}
{{- $checks = append $checks (printf "%s%s" $kind (trimAll ";=" .)) }}
{{- end }}
{{- end }}
{{- $services := list }}
{{- range splitList "," (include "nodegate.setting" (list $ "settings" "watchService")) }}{{ $services = append $services (printf "service:%s" .) }}{{ end }}
{{- range $refs }}
{{- if not (has (trimAll ",;" .) (concat $checks $services)) }}
{{- fail (printf "settings: there is no check %s in httpCheck, tcpCheck and watchService" (trimAll ",;" .)) }}
{{- end }}
{{- end }}
{{- $keys := list }}
{{- range splitList ";" (include "nodegate.setting" (list $ "settings" "checkSettings")) }}
{{- $check := regexFind "^((http|tcp):)?[^:]*" . }}
{{- range regexFindAll "[:,][a-z]+=" (trimPrefix $check .) -1 }}{{ $keys = append $keys (printf "%s:%s" $check (trimAll ":,=" .)) }}{{ end }}
{{- end }}
{{- $forwards := regexFindAll "(^|;)[^;=]+=" (include "nodegate.setting" (list $ "haproxy.settings" "forward")) -1 }}
{{- range $value, $all := dict "extraVolumes" $names "extraVolumeMounts" $mounts "extraEnv" $variables "settings.httpCheck and tcpCheck" $checks "settings.checkSettings" $keys "haproxy.settings.forward" $forwards }}
{{- if ne (len $all) (len (uniq $all)) }}
{{- fail (printf "%s: one of these is set twice: %s" $value (join ", " $all)) }}
{{- end }}
{{- end }}
{{- range regexFindAll "[0-9]+-[0-9]+" (include "nodegate.setting" (list $ "haproxy.settings" "ports")) -1 }}
{{- if gt (splitList "-" . | first | int) (splitList "-" . | last | int) }}
{{- fail (printf "haproxy.settings.ports: %s: takes the smaller port first" .) }}
{{- end }}
{{- end }}
{{- with regexFind "(^|,)(0[.]0[.]0[.]0|::|(22[4-9]|23[0-9])[.][^,]*|[fF][fF][^:,]{2}:[^,]*)(,|$)" (include "nodegate.setting" (list $ "haproxy.settings" "publishStatus")) }}
{{- fail (printf "haproxy.settings.publishStatus: %s: takes the address of one machine" (trimAll "," .)) }}
{{- end }}
{{- range $value, $address := dict "settings.listenAddress" .Values.settings.listenAddress "haproxy.settings.listen" .Values.haproxy.settings.listen "evictionGate.settings.listen" $gate.settings.listen "evictionGate.settings.healthListen" $gate.settings.healthListen }}
{{- if regexMatch "^(127[.]|\\[?(0+:)*:?0*:*0*1(\\]|$)|localhost)" (toString $address) }}
{{- fail (printf "%s: takes an address that the kubelet reaches, which %v is not" $value $address) }}
{{- end }}
{{- end }}
{{- if not .Values.haproxy.settings.listen }}
{{- fail "haproxy.settings.listen: takes an address and a port, e.g. [::]:25003, which the kubelet's probes ask" }}
{{- end }}
{{- $ports := dict "settings.listenPort" (include "nodegate.port" .) "settings.agentCheckPort" (kindIs "invalid" .Values.settings.agentCheckPort | ternary 25002 .Values.settings.agentCheckPort) "settings.metricsAddr" (include "nodegate.portOf" .Values.settings.metricsAddr) }}
{{- $gates := dict "evictionGate.settings.listen" (include "nodegate.portOf" ($gate.settings.listen | default "25005")) "evictionGate.settings.healthListen" (include "nodegate.gate.healthPort" .) }}
{{- if .Values.haproxy.enabled }}{{ $_ := set $ports "haproxy.settings.listen" (include "nodegate.haproxy.port" .) }}{{ end }}
{{- if and $gate.enabled $gate.hostNetwork }}{{ $ports = merge $ports $gates }}{{ end }}
{{- range $ports := list $ports $gates }}
{{- $seen := dict }}
{{- range $value, $port := $ports }}
{{- $port = toString $port }}
{{- if and (hasKey $seen $port) (not (has $port (list "" "0"))) }}
{{- fail (printf "%s: port %s is also that of %s" $value $port (get $seen $port)) }}
{{- end }}
{{- $_ := set $seen $port $value }}
{{- end }}
{{- end }}
{{- $grace := .Values.settings.shutdownGrace | default "5s" }}
{{- if le (mul 1000 (int64 .Values.terminationGracePeriodSeconds)) (include "nodegate.millis" $grace | int64) }}
{{- fail (printf "terminationGracePeriodSeconds: takes more than settings.shutdownGrace, which is %s" $grace) }}
{{- end }}
{{- $stale := .Values.settings.staleAfter | default "15s" }}
{{- if le (mul 1000 (int64 .Values.startupSeconds)) (min 20000 (include "nodegate.millis" $stale | int64)) }}
{{- fail (printf "startupSeconds: takes more than settings.staleAfter, which is %s and counts for 20 s at most" $stale) }}
{{- end }}
{{- range $value, $resources := dict "resources" .Values.resources "haproxy.resources" .Values.haproxy.resources "haproxy.syncResources" .Values.haproxy.syncResources "evictionGate.resources" $gate.resources }}
{{- range $what, $limit := $resources.limits }}
{{- $request := get ($resources.requests | default dict) $what | default 0 }}
{{- if gt (include "nodegate.quantity" $request | float64) (include "nodegate.quantity" $limit | float64) }}
{{- fail (printf "%s: requests.%s, %v, is more than limits.%s, %v" $value $what $request $what $limit) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
