{{/* What every container of the operator's image is given: its image, settings, and how little it may do. */}}
{{- define "modelservice.operator" -}}
image: {{ include "modelservice.image" (list .Values.image .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  {{- if .Values.clusterWide }}
  - name: MODELSERVICE_CLUSTER_WIDE
    value: "true"
  {{- else }}
  - name: MODELSERVICE_NAMESPACES
    value: {{ include "modelservice.namespaces" . | fromJsonArray | join "," | quote }}
  {{- end }}
  - name: MODELSERVICE_ADAPTER_IMAGE
    value: {{ include "modelservice.image" (list .Values.adapter.image .Chart.AppVersion) | quote }}
  - name: MODELSERVICE_HEALTH_PORT
    value: "8080"
  - name: MODELSERVICE_LOG_LEVEL
    value: {{ .Values.logLevel | quote }}
  {{- if .Values.tracing.endpoint }}
  - name: MODELSERVICE_TRACING
    value: {{ .Values.tracing | toJson | quote }}
  {{- end }}
  {{- if ne .Values.callLog.bodies "Off" }}
  - name: MODELSERVICE_CALL_LOG
    value: {{ .Values.callLog | toJson | quote }}
  {{- end }}
  - name: MODELSERVICE_AUTH
    value: {{ .Values.auth | toJson | quote }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: tmp
    mountPath: /tmp
{{- end }}

{{/* What every pod of the operator's image is given, beside its containers. */}}
{{- define "modelservice.pod" -}}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  seccompProfile:
    type: RuntimeDefault
volumes:
  - name: tmp
    emptyDir:
      sizeLimit: 16Mi
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
