{{/* The services of the deployment file, in its order, as JSON: {"services": [...]}. A shuffler has its hop, from 1. */}}
{{- define "croupier.services" -}}
{{- $deployment := fromToml (required "deployment is empty: give the signed file with --set-file deployment=deployment.toml" .Values.deployment) -}}
{{- if $deployment.Error }}{{ fail (printf "deployment is not TOML: %s" $deployment.Error) }}{{ end -}}
{{- if not $deployment.services }}{{ fail "deployment has no [[services]]: give the signed file with --set-file deployment=deployment.toml" }}{{ end -}}
{{- $hops := 0 -}}
{{- range $deployment.services }}{{ if eq .role "shuffler" }}{{ $hops = add1 $hops }}{{ end }}{{ end -}}
{{- $names := list -}}
{{- $services := list -}}
{{- $hop := 0 -}}
{{- range $deployment.services -}}
  {{- $names = append $names .name -}}
  {{- if eq .role "shuffler" }}{{ $hop = add1 $hop }}{{ end -}}
  {{- $service := dict "name" .name "role" .role "address" .address "port" (regexFind "[0-9]+$" .address | int) -}}
  {{- if eq .role "shuffler" }}{{ $service = merge $service (dict "hop" $hop "last" (eq $hop $hops)) }}{{ end -}}
  {{- if .public_address }}{{ $service = merge $service (dict "publicPort" (regexFind "[0-9]+$" .public_address | int)) }}{{ end -}}
  {{- $here := or (empty $.Values.services) (has .name $.Values.services) -}}
  {{- $services = append $services (merge $service (dict "here" $here)) -}}
{{- end -}}
{{- range .Values.services -}}
  {{- if not (has . $names) }}{{ fail (printf "services has %s; the deployment has %s" . (join ", " $names)) }}{{ end -}}
{{- end -}}
{{- if and .Values.waiting (not (has .Values.waiting $names)) -}}
  {{- fail (printf "waiting is %s; the deployment has %s" .Values.waiting (join ", " $names)) -}}
{{- end -}}
{{- range $services -}}
  {{- if and .here (hasKey $.Values.elsewhere .name) -}}
    {{- fail (printf "elsewhere has %s, which runs in this cluster: name the services of this cluster in services" .name) -}}
  {{- end -}}
{{- end -}}
{{- toJson (dict "services" $services) -}}
{{- end -}}

{{/* "true" if `caller` calls `callee`: the lanes, tickets, sequential rounds and inclusion lists of the protocol. */}}
{{- define "croupier.calls" -}}
{{- $caller := .caller -}}
{{- $callee := .callee -}}
{{- if eq $caller.name $callee.name -}}
{{- else if ne $caller.role "shuffler" -}}
  {{- if ne $callee.role "shuffler" }}true{{ end -}}
{{- else if eq $callee.role "shuffler" -}}
  {{- if or (and (eq (int $caller.hop) 1) (gt (int $callee.hop) 1)) (eq (int $callee.hop) (add1 (int $caller.hop) | int)) }}true{{ end -}}
{{- else if or (eq $callee.role "accountant") $caller.last }}true
{{- end -}}
{{- end -}}

{{/* The peers of a rule: the pods of a service in this cluster, or the addresses of one elsewhere. */}}
{{- define "croupier.peer" -}}
{{- $name := .name -}}
{{- if hasKey .root.Values.elsewhere $name -}}
{{- range get .root.Values.elsewhere $name }}
- ipBlock: {cidr: {{ . | quote }}}
{{- end -}}
{{- else if .here }}
- podSelector: {matchLabels: {app.kubernetes.io/name: croupier, app.kubernetes.io/component: {{ $name }}}}
{{- else -}}
{{- fail (printf "elsewhere.%s is missing: the services of this cluster and %s call each other, and only the addresses named there may; --set elsewhere.%s={203.0.113.7/32}" $name $name $name) -}}
{{- end -}}
{{- end -}}

{{- define "croupier.labels" -}}
{app.kubernetes.io/name: croupier, app.kubernetes.io/component: {{ . }}}
{{- end -}}

{{- define "croupier.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Chart.AppVersion }}{{ end }}
{{- end -}}

{{/* What no pod of croupier may do, up to its one container. */}}
{{- define "croupier.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: {{ .Values.resources.stopSeconds }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "croupier.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}
