{{- define "tidemark.labels" -}}
app.kubernetes.io/name: tidemark
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "tidemark.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag }}{{ end }}
{{- end }}
{{- end }}

{{- define "tidemark.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "tidemark.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Spark's settings of executors as pods. */ -}}
{{- define "tidemark.sparkConf" -}}
{{- $conf := dict
  "spark.kubernetes.namespace" .Release.Namespace
  "spark.kubernetes.driver.pod.name" "tidemark-lake-0"
  "spark.kubernetes.container.image" (include "tidemark.image" .)
  "spark.kubernetes.container.image.pullPolicy" .Values.image.pullPolicy
  "spark.kubernetes.executor.podTemplateFile" "/etc/tidemark/executor/pod.yaml"
  "spark.kubernetes.authenticate.executor.serviceAccountName" "tidemark-executor"
  "spark.executor.instances" (toString .Values.executors.instances)
  "spark.driver.port" "7078"
  "spark.driver.blockManager.port" "7079"
  "spark.blockManager.port" "7079" }}
{{- if .Values.store.keys }}
{{- $_ := set $conf "spark.kubernetes.executor.secretKeyRef.AWS_ACCESS_KEY_ID" "tidemark-store:aws_access_key_id" }}
{{- $_ := set $conf "spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY" "tidemark-store:aws_secret_access_key" }}
{{- end }}
{{- toJson $conf }}
{{- end }}
