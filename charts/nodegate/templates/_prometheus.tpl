{{/*
What Prometheus' operator and Grafana get for a component, of (dict "root" $ "component" … "port" … "nodeLabel" …).

No pod declares a port (daemonset.yaml says why), and a PodMonitor's `port` keeps only pods that declare it. Without it
the endpoint keeps all: Prometheus discovers a pod without ports by its address, once for each container, and
relabelings add the port. A ServiceMonitor needs a headless Service besides, and the operator reads Endpoints for it by
default, which end at 1,000 addresses.
*/}}
{{- define "nodegate.prometheus" -}}
{{- $root := .root }}
{{- $of := list .root .component }}
{{- $app := include "nodegate.app" .component }}
{{- if eq $root.Values.prometheus.monitor "service" }}
apiVersion: v1
kind: Service
metadata:
  {{- include "nodegate.metadata" (append $of "-metrics") | nindent 2 }}
  namespace: {{ $root.Release.Namespace }}
spec:
  clusterIP: None
  # A pod that is not Ready is scraped, too.
  publishNotReadyAddresses: true
  selector:
    {{- include "nodegate.selector" $of | nindent 4 }}
  ports:
    - name: metrics
      port: {{ .port }}
---
{{- end }}
apiVersion: monitoring.coreos.com/v1
kind: {{ $root.Values.prometheus.monitor | title }}Monitor
metadata:
  {{- include "nodegate.metadata" $of | nindent 2 }}
    {{- with $root.Values.prometheus.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  namespace: {{ $root.Release.Namespace }}
spec:
  # `job` is the name of the component, as in the alerts.
  jobLabel: app.kubernetes.io/name
  selector:
    matchLabels:
      {{- include "nodegate.selector" $of | nindent 6 }}
  {{- if eq $root.Values.prometheus.monitor "service" }}
  endpoints:
    - port: metrics
      path: /metrics
      interval: 30s
      {{- if .nodeLabel }}
      relabelings:
      {{- end }}
  {{- else }}
  podMetricsEndpoints:
    - path: /metrics
      interval: 30s
      relabelings:
        # A pod without ports is one target for each container; a sidecar must not be a second one.
        - sourceLabels: [__meta_kubernetes_pod_container_name]
          regex: {{ $app }}
          action: keep
        - sourceLabels: [__meta_kubernetes_pod_ip]
          regex: ([^:]+)
          targetLabel: __address__
          replacement: $1:{{ .port }}
        - sourceLabels: [__meta_kubernetes_pod_ip]
          regex: (.*:.*)
          targetLabel: __address__
          replacement: "[$1]:{{ .port }}"
  {{- end }}
        {{- with .nodeLabel }}
        # On every series: alerts and dashboard identify nodes, or balancers, by it.
        - sourceLabels: [__meta_kubernetes_pod_node_name]
          targetLabel: {{ . }}
        {{- end }}
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  {{- include "nodegate.metadata" $of | nindent 2 }}
    {{- with $root.Values.prometheus.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  namespace: {{ $root.Release.Namespace }}
spec:
  {{- $root.Files.Get (printf "files/%s-rules.yaml" $app) | nindent 2 }}
---
# Grafana's sidecar selects it, if it searches all namespaces: grafana.sidecar.dashboards.searchNamespace: ALL in
# kube-prometheus-stack.
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "nodegate.metadata" (append $of "-dashboard") | nindent 2 }}
    grafana_dashboard: "1"
  namespace: {{ $root.Release.Namespace }}
data:
  {{ $app }}-dashboard.json: |
    {{- include "nodegate.dashboard" (dict "root" $root "app" $app) | nindent 4 }}
{{- end }}
