{{/*
Checks of values, one rule for each kind of text or number. files/rules.yaml says which kinds there are and which values are of
them. What is wrong is put into a list, so that an operator reads all of it at once.
*/}}

{{/* What the rules refuse. Renders nothing; dict "root" . "problems" a list, to which it adds. */}}
{{- define "lazuli.checkValues" -}}
{{- $out := . }}
{{- $rules := .root.Files.Get "files/rules.yaml" | fromYaml }}
{{- $names := .root.Files.Get "files/names.json" | fromJson }}
{{- with $rules.Error }}
{{- fail (printf "files/rules.yaml of the chart cannot be read: %s" .) }}
{{- end }}
{{- range $kind, $paths := $rules.values }}
{{- $rule := index $rules.kinds (trimSuffix "?" $kind) }}
{{- range $paths }}
{{- include "lazuli.walk" (dict "value" $out.root.Values "at" "" "segments" (splitList "." .) "rule" $rule "optional" (hasSuffix "?" $kind) "names" $names "out" $out) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Follows a path: dict "value" "at" where it is "segments" what is left of the path "rule" "optional" "names" "out". */}}
{{- define "lazuli.walk" -}}
{{- $walk := . }}
{{- if not .segments }}
{{- include "lazuli.judge" . }}
{{- else }}
{{- $segment := first .segments }}
{{- $rest := rest .segments }}
{{- if eq $segment "#" }}
{{- range $index, $item := (kindIs "slice" .value | ternary .value list) }}
{{- include "lazuli.walk" (merge (dict "value" $item "at" (printf "%s[%d]" $walk.at $index) "segments" $rest) (omit $walk "value" "at" "segments")) }}
{{- end }}
{{- else if kindIs "map" .value }}
{{- range $key, $item := .value }}
{{- $at := printf "%s.%s" $walk.at $key | trimPrefix "." }}
{{- if eq $segment "@" }}
{{- include "lazuli.judge" (merge (dict "key" true "value" $key) (omit $walk "value")) }}
{{- else if or (eq $segment "*") (eq $segment $key) (eq $segment (printf "~%s" $key)) (and (hasPrefix "~" $segment) (eq (lower $segment) (printf "~%s" (lower $key)))) }}
{{- include "lazuli.walk" (merge (dict "value" $item "at" $at "segments" $rest) (omit $walk "value" "at" "segments")) }}
{{- end }}
{{- end }}
{{- if not (or $rest (has $segment (list "@" "*")) (hasPrefix "~" $segment) (hasKey .value $segment) .optional) }}
{{- include "lazuli.problem" (dict "out" .out "text" (printf "%s is not set: allowed is %s." (printf "%s.%s" .at $segment | trimPrefix ".") (include "lazuli.allowed" .))) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Adds a sentence to the problems: dict "out" "text". */}}
{{- define "lazuli.problem" -}}
{{- $_ := set .out "problems" (append .out.problems .text) }}
{{- end }}

{{/* Judges one value, or with "key" one key of the map at "at". */}}
{{- define "lazuli.judge" -}}
{{- $rule := .rule }}
{{- $number := or (kindIs "float64" .value) (kindIs "int64" .value) (kindIs "int" .value) }}
{{- $text := .value | toString }}
{{- if $number }}
{{- $whole := int64 .value }}
{{- if and (eq (float64 $whole) (float64 .value)) (not (hasKey $rule "not")) }}{{ $text = $whole | toString }}{{ end }}
{{- end }}
{{- $subject := printf "%s is %s" .at (ternary $text ($text | quote) $number) }}
{{- if .key }}
{{- $subject = printf "%s has the key %q" .at $text }}
{{- else if eq $text "" }}
{{- $subject = printf "%s is empty" .at }}
{{- else if or $rule.private (contains "\n" $text) (gt (len $text) 200) }}
{{- /* It may be a password, or a key where a certificate belongs. */}}
{{- $subject = printf "%s is a text of %d characters" .at (len $text) }}
{{- end }}
{{- if and .optional (or (kindIs "invalid" .value) (eq $text "")) }}
{{- else if kindIs "invalid" .value }}
{{- include "lazuli.problem" (dict "out" .out "text" (printf "%s is null: allowed is %s." .at (include "lazuli.allowed" .))) }}
{{- else if and $rule.not (regexMatch $rule.not $text) }}
{{- include "lazuli.problem" (dict "out" .out "text" (printf "%s: %s." $subject $rule.because)) }}
{{- else }}
{{- $good := and $rule.also (regexMatch $rule.also $text) }}
{{- $more := "" }}
{{- if $good }}
{{- else if $rule.words }}
{{- $good = has $text $rule.words }}
{{- else if $rule.names }}
{{- $known := index .names $rule.names }}
{{- $plain := trimPrefix ($rule.strip | default "") $text }}
{{- range $known }}
{{- if or (eq . $plain) (and $rule.fold (eq (lower .) (lower $plain))) }}{{ $good = true }}{{ end }}
{{- end }}
{{- if not $good }}
{{- with include "lazuli.nearest" (dict "word" $plain "known" $known) }}
{{- $more = printf " Did you mean %s?" . }}
{{- end }}
{{- end }}
{{- else if $rule.template }}
{{- $wrong := include $rule.template $text | trim }}
{{- $good = not $wrong }}
{{- if ne $wrong "syntax" }}{{ $more = printf " %s" $wrong }}{{ end }}
{{- else if hasKey $rule "least" }}
{{- $good = and $number (ge (float64 .value) (float64 $rule.least)) (le (float64 .value) (float64 $rule.most)) }}
{{- else }}
{{- $good = and (regexMatch $rule.pattern $text) (le (len $text) (int ($rule.longest | default 1048576))) }}
{{- end }}
{{- if not $good }}
{{- include "lazuli.problem" (dict "out" .out "text" (printf "%s: allowed is %s.%s" $subject (include "lazuli.allowed" .) $more)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* What a rule allows, in words. */}}
{{- define "lazuli.allowed" -}}
{{- $list := .rule.words }}
{{- if .rule.names }}{{ $list = index .names .rule.names }}{{ end }}
{{- if .rule.allowed }}{{ .rule.allowed }}
{{- else if hasKey .rule "least" }}a number from {{ int64 .rule.least }} to {{ int64 .rule.most }}
{{- else if eq (len $list) 1 }}{{ first $list }}
{{- else }}{{ initial $list | join ", " }} or {{ last $list }}
{{- end }}
{{- end }}

{{/*
The known name that a word is a slip of: one letter more, less, or another, or two letters exchanged. dict "word" "known". Two
words are so near when they become equal by the loss of at most one letter each.
*/}}
{{- define "lazuli.nearest" -}}
{{- $word := lower .word }}
{{- $losses := include "lazuli.losses" $word | splitList "," }}
{{- $found := "" }}
{{- range .known }}
{{- $known := lower . }}
{{- $apart := sub (len $known) (len $word) }}
{{- if and (not $found) (le $apart 1) (ge $apart -1) }}
{{- $near := has $known $losses }}
{{- range include "lazuli.losses" $known | splitList "," }}
{{- if has . $losses }}{{ $near = true }}{{ end }}
{{- end }}
{{- if $near }}{{ $found = . }}{{ end }}
{{- end }}
{{- end }}
{{- $found }}
{{- end }}

{{/* A word, and each word that it is without one of its letters, between commas. */}}
{{- define "lazuli.losses" -}}
{{- $word := . }}{{ $word }}
{{- range $at := until (len $word) }},{{ substr 0 $at $word }}{{ substr (int (add $at 1)) (len $word) $word }}{{ end }}
{{- end }}

{{/* What is wrong with an address range: "syntax", a sentence, or nothing. The context is the text. */}}
{{- define "lazuli.range" -}}
{{- $four := regexMatch "^((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])[.]){3}(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])/(3[0-2]|[12]?[0-9])$" . }}
{{- $six := include "lazuli.isRangeOfSix" . }}
{{- if not (or $four $six) -}}
syntax
{{- else }}
{{- $length := splitList "/" . | last | int }}
{{- $address := splitList "/" . | first }}
{{- $parts := splitList "." $address }}
{{- $bits := 8 }}
{{- if $six }}
{{- $bits = 16 }}
{{- /* The double colon stands for as many zeros as are missing. */}}
{{- $sides := splitList "::" $address }}
{{- $left := first $sides | splitList ":" | compact }}
{{- $parts = $left }}
{{- if gt (len $sides) 1 }}
{{- $right := last $sides | splitList ":" | compact }}
{{- range until (int (sub 8 (len (concat $left $right)))) }}{{ $parts = append $parts "0" }}{{ end }}
{{- $parts = concat $parts $right }}
{{- end }}
{{- end }}
{{- $behind := false }}
{{- range $index, $part := $parts }}
{{- $number := int64 (ternary (printf "0x%s" $part) $part (eq $bits 16)) }}
{{- $free := sub (mul (add $index 1) $bits) $length | min $bits }}
{{- if gt $free 0 }}
{{- $size := 1 }}
{{- range until (int $free) }}{{ $size = mul $size 2 }}{{ end }}
{{- if ne (mod $number $size) 0 }}{{ $behind = true }}{{ end }}
{{- end }}
{{- end }}
{{- if $behind -}}
The address has bits behind the length {{ $length }}: make them 0.
{{- end }}
{{- end }}
{{- end }}

{{/* Text where the context is an address range of IPv6. */}}
{{- define "lazuli.isRangeOfSix" -}}
{{- $address := splitList "/" . | first }}
{{- $groups := $address | replace "::" ":" | splitList ":" | compact | len }}
{{- $double := contains "::" $address }}
{{- if and (regexMatch "^[0-9A-Fa-f:]+/(12[0-8]|1[01][0-9]|[1-9]?[0-9])$" .) (regexMatch "^(::|[0-9A-Fa-f]{1,4}(::?[0-9A-Fa-f]{1,4})*(::)?|::[0-9A-Fa-f]{1,4}(:[0-9A-Fa-f]{1,4})*)$" $address) (le (len (splitList "::" $address)) 2) (ternary (lt $groups 8) (eq $groups 8) $double) }}yes{{ end }}
{{- end }}
