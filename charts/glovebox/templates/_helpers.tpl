{{- define "glovebox.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "glovebox.labels" -}}
app.kubernetes.io/name: glovebox
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "glovebox.selector" -}}
app.kubernetes.io/name: glovebox
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Names of cluster-wide objects carry the release's, so that two releases do not collide. */ -}}
{{- define "glovebox.controller" -}}{{ .Release.Name }}-controller{{- end }}
{{- define "glovebox.node" -}}{{ .Release.Name }}-node{{- end }}

{{- define "glovebox.installArgs" -}}
- --host=/host
- --bin-dir={{ .Values.node.install.binDir }}
- --runtime-path={{ .Values.node.install.runtimePath }}
- --containerd-config={{ .Values.node.install.containerdConfig }}
- --restart-command={{ .Values.node.install.restartCommand }}
{{- end }}
