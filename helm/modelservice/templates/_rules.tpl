{{/*
What the operator may do, and nothing else: the verbs it uses. No secrets, no wildcards, and no workload is created or
deleted. tests/contract/test_chart.py holds the same table; a change here is a change of what an administrator grants.
*/}}
{{- define "modelservice.everywhereRules" -}}
# What users write. Patch is for the finalizer. Not in a Role: a namespace that is deleted takes its roles away first, and
# nobody would be left to remove the finalizer that then holds the namespace.
- apiGroups: [modelservice.dev]
  resources: [modelservices]
  verbs: [get, list, watch, patch]
# Whether a ModelService is deleted alone or with its whole namespace.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
{{- if include "modelservice.trustsServiceAccounts" . }}
# The public keys of ServiceAccounts' tokens, which adapters verify them with: auth.issuers has one of type Kubernetes.
- nonResourceURLs: [/.well-known/openid-configuration, /openid/v1/jwks]
  verbs: [get]
{{- end }}
{{- end }}
{{- define "modelservice.rules" -}}
- apiGroups: [modelservice.dev]
  resources: [modelservices/status]
  verbs: [patch]
# What is adopted: our own list entries, by server-side apply.
- apiGroups: [apps]
  resources: [deployments, statefulsets, daemonsets]
  verbs: [get, list, watch, patch]
{{- if .Values.standalone.enabled }}
# The adapter as a Deployment of its own: standalone.enabled.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [create, delete]
{{- end }}
# What stands beside it: the Service MCP clients use and the adapter's config.
- apiGroups: [""]
  resources: [services, configmaps]
  verbs: [get, list, watch, create, patch, delete]
# Whether a second pod could hold the workload's volumes: asked before its pods are replaced.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get]
# Which pods answer for that Service.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
# What the user reads in `kubectl describe`.
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}
