{{/*
Grafana's dashboard by files/APP-dashboard.yaml, of (dict "root" $ "app" …). `styles` has what all panels of a type
share, their `target` what the queries of these share, and `variable` what the variables share that `ask` Prometheus.
`at` is a panel's x, y, width and height.
*/}}
{{- define "nodegate.dashboard" -}}
{{- $file := fromYaml (.root.Files.Get (printf "files/%s-dashboard.yaml" .app)) }}
{{- $source := dict "datasource" (dict "type" "prometheus" "uid" "${datasource}") }}
{{- $variables := list }}
{{- range $variable := $file.variables }}
  {{- with .ask }}
    {{- $query := dict "definition" . "query" (dict "query" . "refId" (printf "variable-%s" $variable.name)) }}
    {{- $variable = mergeOverwrite (deepCopy $source) $query (deepCopy $file.styles.variable) (omit $variable "ask") }}
  {{- end }}
  {{- $variables = append $variables $variable }}
{{- end }}
{{- $panels := list }}
{{- range $panel := $file.panels }}
  {{- $style := get $file.styles .type }}
  {{- $at := dict "x" (index .at 0) "y" (index .at 1) "w" (index .at 2) "h" (index .at 3) }}
  {{- $whole := mergeOverwrite (dict "gridPos" $at) (omit (deepCopy $style) "target") (omit $panel "at" "targets") }}
  {{- $targets := list }}
  {{- range $i, $target := .targets }}
    {{- $id := dict "refId" (substr $i (int (add1 $i)) "ABCDEFGH") }}
    {{- $shared := deepCopy (default dict $style.target) }}
    {{- $targets = append $targets (mergeOverwrite (deepCopy $source) $id $shared $target) }}
  {{- end }}
  {{- with $targets }}
    {{- $whole = mergeOverwrite $whole (deepCopy $source) (dict "targets" .) }}
  {{- end }}
  {{- $panels = append $panels $whole }}
{{- end }}
{{- toPrettyJson (merge (dict "panels" $panels "templating" (dict "list" $variables)) $file.dashboard) }}
{{- end }}
