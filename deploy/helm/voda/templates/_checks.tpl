{{/* What values.schema.json cannot say: values that contradict each other. One sentence each, with what to do. */}}
{{- define "voda.checks" -}}
{{- $log := .Values.log }}
{{- $store := $log.store }}
{{- $sqlite := eq $store "sqlite" }}
{{- if not .Values.kinds }}
{{- fail "kinds is empty: expected at least one of Job, MPIJob and PyTorchJob, or JobSet beside Job" }}
{{- end }}
{{- if and (has "JobSet" .Values.kinds) (not (has "Job" .Values.kinds)) }}
{{- fail "kinds has JobSet without Job, but a JobSet is resized by its Job: add Job to kinds" }}
{{- end }}
{{- if not .Values.image.repository }}
{{- fail "image.repository is empty: expected the name of an image of voda that your nodes can pull, such as registry.example.com/voda; `docker build -f deploy/Dockerfile` makes one" }}
{{- end }}
{{- if and $sqlite (ne (include "voda.replicas" .) "1") }}
{{- fail (printf "replicas is %v, but log.store sqlite is a file that one replica alone can have: set log.store to postgresql or jetstream, or leave replicas out" .Values.replicas) }}
{{- end }}
{{- if and $sqlite (or $log.url $log.existingSecret) }}
{{- fail "log.url or log.existingSecret is set, but log.store sqlite has no URL: set log.store to postgresql or jetstream" }}
{{- end }}
{{- if and (not $sqlite) (not $log.url) (not $log.existingSecret) }}
{{- fail (printf "log.store is %s, but nothing says where it is: set log.existingSecret to the name of a Secret whose key `url` holds the URL, or log.url" $store) }}
{{- end }}
{{- if and $log.url $log.existingSecret }}
{{- fail "both log.url and log.existingSecret are set: expected one of them" }}
{{- end }}
{{- $schemes := get (dict "postgresql" (list "postgresql" "postgres") "jetstream" (list "nats" "tls")) $store | default list }}
{{- if and $log.url (not (regexMatch (printf "^(%s)://" (join "|" $schemes)) $log.url)) }}
{{- fail (printf "log.url does not fit log.store %s: expected a URL that begins with %s://" $store (join ":// or " $schemes)) }}
{{- end }}
{{- if and .Values.access.existingSecret .Values.access.adminToken }}
{{- fail "both access.existingSecret and access.adminToken are set: expected one of them" }}
{{- end }}
{{- if and (eq .Values.admissionPolicy "always") (not (has "Job" .Values.kinds)) }}
{{- fail "admissionPolicy is always, but it is for Jobs, which kinds leaves out: add Job to kinds, or set admissionPolicy to auto" }}
{{- end }}
{{- end }}
