{{/*
Roles and bindings for one ServiceAccount: in each namespace that is served, or cluster-wide; and in any case the few
rights over ModelServices that must outlive a namespace's own roles. Takes a dict: "root", the "name" of the roles, the
"account" and "annotations" for all of them.
*/}}
{{- define "modelservice.access" -}}
{{- $root := .root }}
{{- $scope := ternary "ClusterRole" "Role" $root.Values.clusterWide }}
{{- $places := ternary (list "") (include "modelservice.namespaces" $root | fromJsonArray) $root.Values.clusterWide }}
{{- $metadata := dict "name" .name "labels" (include "modelservice.labels" $root | fromYaml) }}
{{- with .annotations }}{{ $_ := set $metadata "annotations" . }}{{ end }}
{{- /* Its name is unique in the cluster although the release is only in its namespace. */}}
{{- $everywhere := printf "%s:%s:modelservices" $root.Release.Namespace .name }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  {{- toYaml (set (deepCopy $metadata) "name" $everywhere) | nindent 2 }}
rules:
  {{- include "modelservice.everywhereRules" $root | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  {{- toYaml (set (deepCopy $metadata) "name" $everywhere) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $everywhere }}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ $root.Release.Namespace }}
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
