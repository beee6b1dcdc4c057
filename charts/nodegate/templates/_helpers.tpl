{{/* The name of all objects. */}}
{{- define "nodegate.name" -}}
{{ .Values.fullnameOverride | default "nodegate" }}
{{- end }}

{{/* The labels of the agent's objects. */}}
{{- define "nodegate.labels" -}}
app.kubernetes.io/name: nodegate
app.kubernetes.io/component: agent
app.kubernetes.io/part-of: nodegate
{{- end }}

{{/* The labels of nodegate-haproxy's objects. */}}
{{- define "nodegate.haproxy.labels" -}}
app.kubernetes.io/name: nodegate-haproxy
app.kubernetes.io/component: haproxy
app.kubernetes.io/part-of: nodegate
{{- end }}

{{- define "nodegate.haproxy.name" -}}
{{ include "nodegate.name" . }}-haproxy
{{- end }}

{{/* The labels of the eviction gate's objects. */}}
{{- define "nodegate.gate.labels" -}}
app.kubernetes.io/name: nodegate-eviction-gate
app.kubernetes.io/component: eviction-gate
app.kubernetes.io/part-of: nodegate
{{- end }}

{{- define "nodegate.gate.name" -}}
{{ include "nodegate.name" . }}-eviction-gate
{{- end }}

{{- define "nodegate.gate.port" -}}
{{ .Values.evictionGate.settings.listen | regexFind "[0-9]+$" | default "25005" }}
{{- end }}

{{- define "nodegate.gate.healthPort" -}}
{{ .Values.evictionGate.settings.healthListen | regexFind "[0-9]+$" | default "25006" }}
{{- end }}

{{/* The gate's settings, with those of the agents that it must know. */}}
{{- define "nodegate.gate.settings" -}}
{{- $settings := deepCopy .Values.evictionGate.settings }}
{{- if not $settings.drainOn }}{{ $_ := set $settings "drainOn" .Values.settings.drainOn }}{{ end }}
{{- if not $settings.agentPort }}{{ $_ := set $settings "agentPort" .Values.settings.listenPort }}{{ end }}
{{- toYaml $settings }}
{{- end }}

{{/* An image, of (dict "image" … "root" $): a digest takes precedence over a tag. */}}
{{- define "nodegate.image" -}}
{{- with .image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.root.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/*
Settings as variables, of (dict "settings" … "prefix" …): what is null or empty is not set. The variable of a flag is its name
behind the prefix, but for three; lists have commas, and where these are part of an element, semicolons.
*/}}
{{- define "nodegate.env" -}}
{{- $names := dict "listenPort" "LISTEN_PORT" "log" "RUST_LOG" "logFormat" "NODEGATE_LOG_FORMAT" -}}
{{- $semicolons := list "checkSettings" "httpCheck" "tcpCheck" -}}
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

{{/* The port of /health. */}}
{{- define "nodegate.port" -}}
{{ .Values.settings.listenPort | default 25001 }}
{{- end }}

{{/* The port of /metrics. */}}
{{- define "nodegate.metricsPort" -}}
{{- if .Values.settings.metricsAddr -}}
{{ .Values.settings.metricsAddr | regexFind "[0-9]+$" }}
{{- else -}}
{{ include "nodegate.port" . }}
{{- end }}
{{- end }}

{{- define "nodegate.haproxy.port" -}}
{{ .Values.haproxy.settings.listen | regexFind "[0-9]+$" }}
{{- end }}

{{/* Combinations of values that the chart rejects, for which a schema has no readable error. */}}
{{- define "nodegate.check" -}}
{{- if and .Values.hostChecks.enabled .Values.openshift.enabled }}
{{- fail "hostChecks.enabled and openshift.enabled do not go together: the SCC hostnetwork-v2 allows no hostPath" }}
{{- end }}
{{- if and .Values.haproxy.enabled (not (include "nodegate.haproxy.port" .)) }}
{{- fail "haproxy.settings.listen: takes an address and a port, e.g. [::]:25003, which the kubelet's probes ask" }}
{{- end }}
{{- end }}

{{/* The agent's identity for the API server. */}}
{{- define "nodegate.subject" -}}
- kind: ServiceAccount
  name: {{ include "nodegate.name" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{/* The common fields of the containers in nodegate-haproxy's pod, of (dict "image" … "root" $). */}}
{{- define "nodegate.haproxy.container" -}}
image: {{ .image }}
{{- with .root.Values.haproxy.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: configuration
    mountPath: /etc/haproxy
  - name: run
    mountPath: /run/haproxy
  {{- if .root.Values.haproxy.template }}
  - name: template
    mountPath: /etc/nodegate-haproxy
  {{- end }}
{{- end }}

{{/* The arguments of the container that writes the first configuration, and of the one that updates it. */}}
{{- define "nodegate.haproxy.env" -}}
- name: NODEGATE_HAPROXY_CONFIG
  value: /etc/haproxy/haproxy.cfg
- name: NODEGATE_HAPROXY_BEFORE
  value: none
- name: NODEGATE_HAPROXY_STATE_DIR
  value: /etc/haproxy
{{- if .Values.haproxy.template }}
- name: NODEGATE_HAPROXY_TEMPLATE
  value: /etc/nodegate-haproxy/haproxy.cfg.TEMPLATE
{{- end }}
{{- include "nodegate.env" (dict "settings" (omit .Values.haproxy.settings "listen") "prefix" "NODEGATE_HAPROXY") }}
{{- end }}
