{{/*
Roles and bindings for one ServiceAccount: in each namespace that is served, or cluster-wide. Takes a dict: "root", the
"account" (which names the roles too unless "name" is given) and "annotations" for all of them.
*/}}
{{- define "modelservice.access" -}}
{{- $root := .root }}
{{- $scope := ternary "ClusterRole" "Role" $root.Values.clusterWide }}
{{- $places := ternary (list "") (include "modelservice.namespaces" $root | fromJsonArray) $root.Values.clusterWide }}
{{- $metadata := dict "name" .name "labels" (include "modelservice.labels" $root | fromYaml) }}
{{- with .annotations }}{{ $_ := set $metadata "annotations" . }}{{ end }}
{{- range $places }}
{{- if . }}{{ $_ := set $metadata "namespace" . }}{{ end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $scope }}
metadata:
  {{- toYaml $metadata | nindent 2 }}
rules:
  {{- include "modelservice.rules" $root | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $scope }}Binding
metadata:
  {{- toYaml $metadata | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $scope }}
  name: {{ $.name }}
subjects:
  - kind: ServiceAccount
    name: {{ $.account }}
    namespace: {{ $root.Release.Namespace }}
{{- end }}
{{- end }}
