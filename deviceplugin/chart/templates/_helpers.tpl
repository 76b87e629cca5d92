{{- define "tranche.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "tranche.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "tranche.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "tranche.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "tranche.selector" -}}
app.kubernetes.io/name: {{ include "tranche.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tranche.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "tranche.selector" . }}
{{- end }}

{{- define "tranche.image" -}}
{{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}

{{- define "tranche.deviceplugin.toml" -}}
resource_domain = {{ .Values.resourceDomain | quote }}
tranched_socket = {{ printf "%s/tranched.sock" .Values.hostPaths.runtime | quote }}
kubelet_dir = {{ printf "%s/device-plugins" .Values.hostPaths.kubelet | quote }}
pod_resources_socket = {{ printf "%s/pod-resources/kubelet.sock" .Values.hostPaths.kubelet | quote }}
log = {{ .Values.devicePlugin.log | quote }}
metrics = {{ include "tranche.metrics" (dict "values" .Values "port" .Values.metrics.pluginPort) }}
events = {{ .Values.events.enabled }}
dynamic = {{ .Values.dynamic }}
{{- if .Values.gpus }}
gpus = [{{ range $at, $gpu := .Values.gpus }}{{ if $at }}, {{ end }}{{ $gpu | toString | quote }}{{ end }}]
{{- end }}
{{- if .Values.nodeFeatures.enabled }}
features_dir = {{ .Values.nodeFeatures.directory | quote }}
{{- end }}
{{- with .Values.devicePlugin.config }}
{{ . }}
{{- end }}
{{- range .Values.profiles }}

[[profile]]
name = {{ .name | quote }}
{{- with get . "fraction" }}
fraction = {{ . | toString | quote }}
{{- end }}
{{- with get . "memoryMiB" }}
memory_mib = {{ . | int64 }}
{{- end }}
{{- with get . "compute" }}
compute = {{ . | toString | quote }}
{{- end }}
{{- with get . "limit" }}
limit = {{ . | toString | quote }}
{{- end }}
{{- with get . "computeMode" }}
compute_mode = {{ . | quote }}
{{- end }}
{{- with get . "priority" }}
priority = {{ . | int }}
{{- end }}
{{- with get . "latencyMs" }}
latency_ms = {{ . | toString | quote }}
{{- end }}
{{- end }}
{{- if not .Values.dynamic }}
{{- range .Values.layouts }}

[[layout]]
{{- if hasKey . "gpu" }}
gpu = {{ .gpu | toString | quote }}
{{- end }}
{{- with get . "model" }}
model = {{ . | quote }}
{{- end }}
profiles = {{ .profiles | toJson }}
{{- end }}
{{- end }}
{{- end }}

{{/* Where a pod serves its metrics: at its own addresses, or for itself alone. */}}
{{- define "tranche.metrics" -}}
{{- printf "%s:%v" (ternary .values.metrics.address "127.0.0.1" .values.metrics.enabled) .port | quote }}
{{- end }}

{{/* What tells Prometheus to ask a pod, where its configuration heeds annotations. */}}
{{- define "tranche.scrape" -}}
prometheus.io/scrape: "true"
prometheus.io/path: /metrics
prometheus.io/port: {{ . | quote }}
{{- end }}

{{- define "tranche.tranched.toml" -}}
runtime_dir = {{ .Values.hostPaths.runtime | quote }}
state_dir = {{ .Values.hostPaths.state | quote }}
cdi_dir = {{ .Values.hostPaths.cdi | quote }}
log = {{ .Values.tranched.log | quote }}
metrics = {{ include "tranche.metrics" (dict "values" .Values "port" .Values.metrics.daemonPort) }}
{{- with .Values.tranched.config }}
{{ . }}
{{- end }}
{{- end }}

{{- define "tranche.dradriver.toml" -}}
driver = {{ .Values.dra.driverName | quote }}
tranched_socket = {{ printf "%s/tranched.sock" .Values.hostPaths.runtime | quote }}
kubelet_dir = {{ .Values.hostPaths.kubelet | quote }}
log = {{ .Values.dra.log | quote }}
metrics = {{ include "tranche.metrics" (dict "values" .Values "port" .Values.metrics.draPort) }}
{{- if .Values.dra.gpus }}
gpus = [{{ range $at, $gpu := .Values.dra.gpus }}{{ if $at }}, {{ end }}{{ if kindIs "string" $gpu }}{{ $gpu | quote }}{{ else }}{{ $gpu | int64 }}{{ end }}{{ end }}]
{{- end }}
{{- if .Values.dra.profileGpus }}
profile_gpus = [{{ range $at, $gpu := .Values.dra.profileGpus }}{{ if $at }}, {{ end }}{{ if kindIs "string" $gpu }}{{ $gpu | quote }}{{ else }}{{ $gpu | int64 }}{{ end }}{{ end }}]
{{- end }}
{{- with .Values.dra.config }}
{{ . }}
{{- end }}
{{- range .Values.dra.profiles }}

[[profile]]
name = {{ .name | quote }}
permille = {{ round (mulf (.fraction | float64) 1000.0) 0 | int }}
{{- end }}
{{- end }}

{{- define "tranche.nriplugin.toml" -}}
runtime_socket = {{ printf "%s/nri.sock" .Values.hostPaths.nri | quote }}
index = {{ .Values.nri.index | toString | quote }}
tranched_socket = {{ printf "%s/tranched.sock" .Values.hostPaths.runtime | quote }}
cdi_dir = {{ .Values.hostPaths.cdi | quote }}
node_root = "/host"
log = {{ .Values.nri.log | quote }}
metrics = {{ include "tranche.metrics" (dict "values" .Values "port" .Values.metrics.nriPort) }}
{{- with .Values.nri.config }}
{{ . }}
{{- end }}
{{- end }}

{{/* Parameters of a DeviceClass's slices. */}}
{{- define "tranche.dra.parameters" -}}
{{- with .Values.dra.parameters -}}
config:
  - opaque:
      driver: {{ $.Values.dra.driverName }}
      parameters:
        apiVersion: gpu.tranche.dev/v1
        kind: SliceParameters
        {{- toYaml . | nindent 8 }}
{{- end }}
{{- end }}

{{/* What the daemon's and the plugin's pods have in common. */}}
{{- define "tranche.pod" -}}
serviceAccountName: {{ include "tranche.fullname" . }}
{{ include "tranche.placement" . }}
{{- end }}

{{/* What all pods have in common. */}}
{{- define "tranche.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
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
