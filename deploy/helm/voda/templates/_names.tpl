{{/* Name of all objects: that of the release, with the chart's behind it where the release's lacks it. */}}
{{- define "voda.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride }}
{{- else if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 53 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 53 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Name of objects outside voda's own namespace: two releases of one name in two namespaces do not meet. */}}
{{- define "voda.clusterName" -}}
{{ include "voda.fullname" . }}.{{ .Release.Namespace }}
{{- end }}

{{- define "voda.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: scheduler
{{- end }}

{{- define "voda.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: voda
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "voda.image" -}}
{{- $image := .Values.image }}
{{- $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "voda.port" -}}8470{{- end }}

{{- define "voda.url" -}}
http://{{ include "voda.fullname" . }}.{{ .Release.Namespace }}.svc:{{ include "voda.port" . }}
{{- end }}

{{- define "voda.replicas" -}}
{{- if not (kindIs "invalid" .Values.replicas) }}{{ .Values.replicas }}
{{- else if eq .Values.log.store "sqlite" }}1
{{- else }}2
{{- end }}
{{- end }}

{{- define "voda.logSecret" -}}
{{ .Values.log.existingSecret | default (printf "%s-log" (include "voda.fullname" .)) }}
{{- end }}

{{- define "voda.accessSecret" -}}
{{ .Values.access.existingSecret | default (printf "%s-access" (include "voda.fullname" .)) }}
{{- end }}

{{/*
Who has the definition of JobStates: one for the cluster, it belongs to the release that came first, whose uninstall
leaves it. Empty: this release, or it is not there.
*/}}
{{- define "voda.jobStatesOwner" -}}
{{- $there := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "jobstates.voda.dev" }}
{{- $notes := (($there).metadata).annotations | default dict }}
{{- $name := get $notes "meta.helm.sh/release-name" }}
{{- $namespace := get $notes "meta.helm.sh/release-namespace" }}
{{- if and $there (or (ne $name .Release.Name) (ne $namespace .Release.Namespace)) }}
{{- ternary (printf "release %s in namespace %s" $name $namespace) "no release" (ne $name "") }}
{{- end }}
{{- end }}

{{- define "voda.namespaces" -}}
{{ ((.Values.settings.cluster).namespaces) | default list | toJson }}
{{- end }}

{{/* Ports of the log, as a JSON list: those of its URL, where the URL is known. */}}
{{- define "voda.logPorts" -}}
{{- $default := get (dict "postgresql" 5432 "jetstream" 4222) .Values.log.store }}
{{- $ports := list }}
{{- if .Values.networkPolicy.logPort }}
{{- $ports = list (int .Values.networkPolicy.logPort) }}
{{- else }}
{{- $hosts := regexReplaceAll "^[^:]*://([^/?]*@)?|[/?].*$" .Values.log.url "" }}
{{- range splitList "," $hosts }}
{{- $port := regexFind ":[0-9]+$" . | trimPrefix ":" }}
{{- $ports = append $ports (ternary (int $port) $default (ne $port "")) }}
{{- end }}
{{- end }}
{{- uniq $ports | toJson }}
{{- end }}

{{/* Ports of the API server, as a JSON list: the usual ones, and where Helm reaches the cluster, those that it has. */}}
{{- define "voda.apiServerPorts" -}}
{{- $ports := .Values.networkPolicy.apiServerPorts }}
{{- range (lookup "discovery.k8s.io/v1" "EndpointSlice" "default" "kubernetes").ports }}
{{- $ports = append $ports .port }}
{{- end }}
{{- $whole := list }}
{{- range $ports }}
{{- $whole = append $whole (int .) }}
{{- end }}
{{- uniq $whole | toJson }}
{{- end }}

{{/* The same for all containers: what Pod Security "restricted" asks for, and a root file system that is read only. */}}
{{- define "voda.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "voda.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "voda.logEnv" -}}
- name: VODA_LOG
{{- if eq .Values.log.store "sqlite" }}
  value: /var/lib/voda/voda.db
{{- else }}
  valueFrom:
    secretKeyRef:
      name: {{ include "voda.logSecret" . }}
      key: url
{{- end }}
{{- end }}
