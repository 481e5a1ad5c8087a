{{/* Names and labels. Everything the chart makes is called "modelservice.fullname" or begins with it. */}}

{{- define "modelservice.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "modelservice.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "modelservice.selectorLabels" -}}
app.kubernetes.io/name: {{ include "modelservice.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "modelservice.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "modelservice.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: modelservice
{{- end }}

{{- define "modelservice.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "modelservice.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name is needed when serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* An image reference. Takes a list: the image's values, the version used when they name neither tag nor digest. */}}
{{- define "modelservice.image" -}}
{{- $image := index . 0 }}
{{- if $image.digest }}
{{- printf "%s@%s" $image.repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $image.repository (default (index . 1) $image.tag) }}
{{- end }}
{{- end }}

{{/* "true" where an issuer is this cluster itself; else nothing. */}}
{{- define "modelservice.trustsServiceAccounts" -}}
{{- range .Values.auth.issuers }}
{{- if and (eq (default "OIDC" .type) "Kubernetes") (not .jwks) (not .jwksUri) }}true{{ end }}
{{- end }}
{{- end }}

{{/* The namespaces served, as a JSON list. */}}
{{- define "modelservice.namespaces" -}}
{{- if and .Values.clusterWide .Values.watchNamespaces }}
{{- fail "clusterWide and watchNamespaces exclude each other: leave watchNamespaces empty to serve every namespace" }}
{{- end }}
{{- .Values.watchNamespaces | default (list .Release.Namespace) | toJson }}
{{- end }}
