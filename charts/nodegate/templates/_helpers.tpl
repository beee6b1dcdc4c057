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
  name: {{ include "nodegate.account" . }}
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
  namespace: {{ . }}
  {{- end }}
{{- end }}

{{/* The binding of that role: to the component's ServiceAccount, or to the user in "user". */}}
{{- define "nodegate.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ if .namespace }}RoleBinding{{ else }}ClusterRoleBinding{{ end }}
metadata:
  {{- include "nodegate.metadata" (list .root .component (printf "%s%s" (.suffix | default "") (.user | default ""))) | nindent 2 }}
  {{- with .namespace }}
  namespace: {{ . }}
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
    name: {{ include "nodegate.account" (list .root .component) }}
    namespace: {{ .root.Release.Namespace }}
  {{- end }}
{{- end }}

{{/* An image, of (dict "image" … "root" $): a digest takes precedence over a tag. */}}
{{- define "nodegate.image" -}}
{{- with .image -}}
image: {{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.root.Chart.AppVersion }}{{ end }}
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

{{/*
Settings as variables, of (dict "settings" … "prefix" …): what is null or empty is not set. The variable of a flag is its name
behind the prefix, but for three; lists have commas, and where these are part of an element, semicolons.
*/}}
{{- define "nodegate.env" -}}
{{- $names := dict "listenPort" "LISTEN_PORT" "log" "RUST_LOG" "logFormat" "NODEGATE_LOG_FORMAT" -}}
{{- $semicolons := list "checkSettings" "httpCheck" "tcpCheck" "forward" -}}
{{- range $key, $value := .settings }}
{{- $text := "" }}
{{- if kindIs "slice" $value }}
{{- $text = join (ternary ";" "," (has $key $semicolons)) $value }}
{{- else if not (kindIs "invalid" $value) }}
{{- $text = toString $value }}
{{- end }}
{{- if $text }}
- name: {{ get $names $key | default (printf "%s_%s" $.prefix ($key | snakecase | upper)) }}
  value: {{ $text | quote }}
{{- end }}
{{- end }}
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

{{/* Combinations of values that the chart rejects, for which a schema has no readable error. */}}
{{- define "nodegate.check" -}}
{{- $name := include "nodegate.fullname" . }}
{{- if or (not (regexMatch "^[a-z][-a-z0-9]*$" $name)) (has $name (list "true" "false" "null" "yes" "no" "on" "off" "y" "n")) }}
{{- fail (printf "the objects' name %q: takes a-z, 0-9 and -, beginning with a letter, and no word of YAML; set fullnameOverride" $name) }}
{{- end }}
{{- if and .Values.evictionGate.caBundle (not .Values.evictionGate.tlsSecret) }}
{{- fail "evictionGate.caBundle needs evictionGate.tlsSecret: the gate writes the CA of its own certificate itself" }}
{{- end }}
{{- if and .Values.hostSignals.enabled .Values.openshift.enabled }}
{{- fail "hostSignals.enabled and openshift.enabled do not go together: the SCC hostnetwork-v2 allows no hostPath" }}
{{- end }}
{{- if and .Values.hostChecks.enabled .Values.openshift.enabled }}
{{- fail "hostChecks.enabled and openshift.enabled do not go together: the SCC hostnetwork-v2 allows no hostPath" }}
{{- end }}
{{- if and .Values.haproxy.enabled .Values.openshift.enabled }}
{{- fail "haproxy.enabled and openshift.enabled do not go together: the SCC hostnetwork-v2 does not allow HAProxy's user" }}
{{- end }}
{{- with .Values.updateStrategy.rollingUpdate }}
{{- if and (ne (toString (.maxSurge | default 0)) "0") (ne (toString (.maxUnavailable | default 0)) "0") }}
{{- fail (printf "updateStrategy.rollingUpdate: one of maxSurge (%v) and maxUnavailable (%v) must be 0" .maxSurge .maxUnavailable) }}
{{- end }}
{{- end }}
{{- $own := list "app.kubernetes.io/name" "app.kubernetes.io/component" "app.kubernetes.io/part-of" }}
{{- range $value, $labels := dict "commonLabels" .Values.commonLabels "podLabels" .Values.podLabels "prometheus.labels" .Values.prometheus.labels }}
{{- range $key, $_ := $labels }}
{{- if has $key $own }}
{{- fail (printf "%s: the chart itself sets the label %s" $value $key) }}
{{- end }}
{{- if and (ne $value "commonLabels") (hasKey ($.Values.commonLabels | default dict) $key) }}
{{- fail (printf "%s: the label %s is in commonLabels, too" $value $key) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $key, $_ := .Values.podAnnotations }}
{{- if has $key (list "kubectl.kubernetes.io/default-container" "cluster-autoscaler.kubernetes.io/enable-ds-eviction" "openshift.io/required-scc") }}
{{- fail (printf "podAnnotations: the chart itself sets the annotation %s" $key) }}
{{- end }}
{{- end }}
{{- range $value, $address := dict "settings.listenAddress" .Values.settings.listenAddress "haproxy.settings.listen" .Values.haproxy.settings.listen "evictionGate.settings.listen" .Values.evictionGate.settings.listen "evictionGate.settings.healthListen" .Values.evictionGate.settings.healthListen }}
{{- if regexMatch "^(127[.]|\\[?::1(\\]|$)|localhost)" (toString $address) }}
{{- fail (printf "%s: takes an address that the kubelet reaches, which %v is not" $value $address) }}
{{- end }}
{{- end }}
{{- $ports := dict }}
{{- range $value, $port := dict "settings.listenPort" (include "nodegate.port" .) "settings.agentCheckPort" (kindIs "invalid" .Values.settings.agentCheckPort | ternary 25002 .Values.settings.agentCheckPort) "settings.metricsAddr" (include "nodegate.portOf" .Values.settings.metricsAddr) }}
{{- $port = toString $port }}
{{- if and (hasKey $ports $port) (not (has $port (list "" "0"))) }}
{{- fail (printf "%s: port %s is also that of %s" $value $port (get $ports $port)) }}
{{- end }}
{{- $_ := set $ports $port $value }}
{{- end }}
{{- if and .Values.haproxy.enabled (not (include "nodegate.haproxy.port" .)) }}
{{- fail "haproxy.settings.listen: takes an address and a port, e.g. [::]:25003, which the kubelet's probes ask" }}
{{- end }}
{{- end }}
