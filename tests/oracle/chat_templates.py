"""Templates that use every construct, and chats to render templates with."""

PERSON = {"name": "Ann", "age": 7, "tags": ["x", "y"], "none": None, "ok": True, "f": 2.5}
ROWS = [{"k": "b", "n": 2, "in": {"z": 1}}, {"k": "A", "n": 1, "in": {"z": 3}}, {"k": "c", "n": 3, "in": {"z": 2}, "x": 0}]
VARIABLES = {
    "messages": [{"role": "system", "content": " Be  kind. "}, {"role": "user", "content": "Grüße, \"Zoë\" & <b>\n\t'Ω'"},
                 {"role": "assistant", "content": "", "tool_calls": [
                     {"type": "function", "function": {"name": "f", "arguments": {"a": [1, 2.0, None], "b": "é"}}}]}],
    "person": PERSON, "rows": ROWS, "numbers": [3, -1, 2, 2], "empty": [], "text": "a,b,,c", "d": {}, "big": 1e20,
    "lines": "one\ntwo\r\n\n  three\n", "words": "hello wOrld it's-here (now)", "add_generation_prompt": True, "small": 1.5e-7,
}

# Each renders with VARIABLES to what jinja2 says, or is refused by both.
EXPRESSIONS = """
person.name ~ person['age'] ~ person.get('none') ~ person.get('no', 'else')
1 + 2 * 3 - 4 / 2 ~ 7 // 2 ~ -7 // 2 ~ -7 % 3 ~ 7.5 % -2 ~ 2 ** 10 ~ 2 ** -1 ~ 2 ** 3 ** 2
1.0 ~ ' ' ~ 1e16 ~ ' ' ~ 123456789.125 ~ ' ' ~ big ~ ' ' ~ small ~ ' ' ~ 1e-5 ~ ' ' ~ -0.0 ~ ' ' ~ 0.1 + 0.2
'a' * 3 ~ 'ab'[::-1] ~ [1, 2] * 2 ~ [1] + [2, 3] ~ (1, 2) + (3,)
1 < 2 <= 2 < 3 and 3 > 2 >= 2 and 1 == 1.0 and true == 1 and 1 != '1' and none == none
'a' in 'cat' and 2 in numbers and 'name' in person and 9 not in numbers and not 'z' in 'cat'
not true or false and true
1 if person.ok else 2
(1 if not person.ok)
'x' if person.none else 'y' if person.ok else 'z'
[1, 'a', none, true, 2.0, {'k': [()]}, (1,), (1, 2)]
{'a': 1, "b": "it's", 'c': 'say "hi"', 'd': 'both \\' and "', 2: none}
'\\n\\t\\\\ \\x41 \\u00e9 \\q \\101' ~ "double 'quoted'"
'one ' 'two'
numbers[0] ~ numbers[-1] ~ numbers[1:] ~ numbers[:-1] ~ numbers[::2] ~ numbers[::-1] ~ numbers[5:] ~ numbers[-9:2]
text[0] ~ text[1:3] ~ text[-1] ~ text[::-1] ~ messages[1].content[0:5]
range(3) | list ~ range(1, 10, 4) | list ~ range(5, 0, -2) | list ~ range(3)[1] ~ range(10)[2:4] | list
messages | length ~ text | length ~ person | length ~ messages[1].content | length
text.split(',') ~ text.split(',', 1) ~ text.rsplit(',', 1) ~ ' a  b '.split() ~ ' a  b c '.split(none, 1) ~ ' a b c '.rsplit(None, 1)
text.split('') 
' x '.strip() ~ '|' ~ ' x '.lstrip() ~ '|' ~ ' x '.rstrip() ~ '|' ~ 'xxaxx'.strip('x') ~ 'éaé'.strip('é') ~ '\u2003x\u00a0'.strip()
'abc'.startswith('ab') and 'abc'.endswith(('x', 'c')) and not 'abc'.startswith('')
'abc'.startswith(['a'])
words.upper() ~ words.lower() ~ words.title() ~ words.capitalize()
'Straße über Ñandú ÉÈ'.lower() ~ 'über ñandú éè жук'.upper() ~ 'éa Жук'.capitalize()
'a-b-c'.replace('-', '+') ~ 'a-b-c'.replace('-', '+', 1) ~ 'abc'.replace('', '.') ~ 'aXb' | replace('X', 5)
'abcabc'.find('c') ~ 'abcabc'.rfind('c') ~ 'abc'.find('z') ~ 'éab'.index('b') ~ 'abab'.count('ab') ~ 'ab'.count('')
'abc'.index('z')
'a=b=c'.partition('=') ~ 'a=b=c'.rpartition('=') ~ 'abc'.partition('=')
'-'.join(['a', 'b']) ~ ', '.join(person)
'-'.join([1])
'prefix-x'.removeprefix('prefix-') ~ 'x.txt'.removesuffix('.txt')
'12'.isdigit() ~ '1a'.isdigit() ~ ''.isdigit() ~ 'abc'.isalpha() ~ ' '.isspace() ~ 'ABC'.isupper() ~ 'abc'.islower() ~ '1'.isupper()
lines.splitlines() ~ lines.splitlines(true)
person.items() | list ~ person.keys() | list ~ person.values() | list
person.items()
person.keys() ~ {}.values()
person | items | list
person | dictsort ~ {'b': 1, 'A': 2} | dictsort ~ {'b': 1, 'A': 2} | dictsort(true) ~ {'b': 1, 'A': 2} | dictsort(by='value', reverse=true)
{'a': {'b': 1}} == {'a': {'b': 1.0}} and {'a': 1, 'b': 2} == {'b': 2, 'a': 1} and [1] != (1,) and [1, 2] < [1, 3]
rows | map(attribute='k') | list ~ rows | map(attribute='in.z') | join('-') ~ rows | map(attribute='x', default='none') | list
['a', 'b'] | map('upper') | list ~ ['1', '2'] | map('int') | list ~ ['a'] | map('replace', 'a', 'c') | first
rows | selectattr('n', 'gt', 1) | map(attribute='k') | list ~ rows | rejectattr('n', 'equalto', 2) | map(attribute='k') | list
rows | selectattr('x') | list | length ~ rows | selectattr('x', 'defined') | list | length
numbers | select('odd') | list ~ numbers | reject('==', 2) | list ~ [0, 1, '', 'a'] | select | list
(messages | selectattr('role', 'equalto', 'nobody')) and true
messages | selectattr('role', 'equalto', 'user') | length
rows | sort(attribute='k') | map(attribute='k') | list ~ ['b', 'A', 'c'] | sort ~ ['b', 'A'] | sort(case_sensitive=true) ~ numbers | sort(reverse=true)
[1, 'a'] | sort
['b', 'B', 'a', 'b'] | unique | list ~ numbers | unique | list ~ rows | unique(attribute='n') | map(attribute='k') | list
numbers | min ~ numbers | max ~ rows | max(attribute='n') ~ empty | max ~ ['b', 'A'] | min
numbers | first ~ numbers | last ~ empty | first ~ 'abc' | first ~ 'abc' | last ~ person | first
numbers | reverse | list ~ 'abc' | reverse ~ person | reverse | list
numbers | join ~ numbers | join(', ') ~ rows | join('|', attribute='k') ~ 'abc' | join('.') ~ [none, true, 1.0] | join(' ')
'  x ' | trim ~ 'xxaxx' | trim('x') ~ 5 | trim ~ nothing | trim ~ '|'
words | title ~ words | capitalize ~ words | upper ~ words | lower ~ 5 | upper ~ none | lower
nothing | default('d') ~ '' | default('d') ~ '' | default('d', true) ~ none | d('d', boolean=true) ~ 0 | default(5)
nothing ~ nothing | length ~ nothing | upper ~ nothing | list ~ nothing | string | length
nothing.more
nothing + 1
nothing()
nothing == nothing2 and nothing != none and not nothing and 1 not in nothing
'5' | int ~ '5.9' | int ~ ' -7 ' | int ~ 'x' | int ~ 'x' | int(3) ~ 5.9 | int ~ -5.9 | int ~ true | int ~ none | int ~ '0x1f' | int(0, 16) ~ 'ff' | int(base=16) ~ '1_000' | int
'5' | float ~ '1e3' | float ~ 'x' | float ~ 'x' | float(1.5) ~ 2 | float ~ none | float
2.5 | round ~ 3.5 | round ~ 2.567 | round(2) ~ 2.5 | round(0, 'ceil') ~ 2.5 | round(method='floor') ~ 7 | round ~ 2.675 | round(2)
-5 | abs ~ -2.5 | abs
5 | string ~ none | string ~ [1] | string ~ 1.0 | string
'abc' | list ~ person | list ~ (1, 2) | list
lines | indent ~ '|' ~ lines | indent(2, true) ~ '|' ~ lines | indent(width=3, blank=true) ~ '|' ~ 'x' | indent ~ lines | indent('--')
person | tojson ~ rows | tojson ~ messages | tojson
person | tojson(indent=2) ~ [] | tojson(indent=2) ~ [[], {}, [1]] | tojson(indent=1) ~ {'a': {}} | tojson(indent=4)
person | tojson(separators=(',', ':')) ~ person | tojson(sort_keys=true) ~ 'é\\u2028"\\\\/\\x7f' | tojson ~ 'é😀' | tojson(ensure_ascii=true)
[1.0, 1e20, 0.1, none, true, 'x', 5] | tojson ~ {1: 2, none: 3, true: 4, 1.5: 5} | tojson ~ (1, 2) | tojson
nothing | tojson
range(3) | tojson
'<b>' | safe ~ ('<b>' | safe) + '<i>' ~ '&' + ('<b>' | safe) ~ person | tojson | safe
person is defined and nothing is undefined and nothing is not defined and person.no is undefined
person is mapping and person is iterable and 'a' is string and 1 is number and 1.5 is float and 1 is integer and true is boolean and none is none
true is number ~ true is integer ~ 'a' is iterable ~ 5 is iterable ~ [] is sequence ~ {} is sequence ~ 'a' is sequence ~ none is mapping ~ nothing is iterable
true is true and false is false and 1 is not true and 3 is odd and 4 is even and 9 is divisibleby(3) and 9 is divisibleby 3
1 is eq 1 and 1 is equalto(1) and 1 is ne 2 and 2 is gt 1 and 2 is ge(2) and 1 is lt 2 and 1 is le 1 and 1 is in [1] and 'a' is in('abc') and 1 is sameas 1.0
none is sameas none and 'abc' is lower and 'ABC' is upper and 'A1' is upper and not '1' is upper and range is callable
1 is string or 'x' is none else 2
'%s' | length
'{}-{}{{}}'.format(1, none) ~ '%s=%s%%' | format('a', 2)
'{}'.format()
'%s' | format(1, 2)
'{x}'.format(x=1) if false
person.tags.index('y') ~ person.tags.count('x')
person.tags.index('z')
person.tags.append('z')
person.update({})
person.__class__
person.name.__class__
''.join(['x', none])
dict(a=1, b=[2]) ~ dict({'a': 1}, b=2)
namespace(a=1).a
namespace(_a=1)
loop
'a' < 1
'a' + 1
1 / 0
1 // 0
[1][5] ~ 'abc'[7] ~ {}['x'] ~ [1]['x'] ~ none.x ~ 5 .x
none[0] ~ (5)['a']
raise_exception('stop ' ~ 5)
text | nosuchfilter
text is nosuchtest
'a' 'b'.upper() ~ -person.age ~ +person.age ~ - 2 ** 2
-'a'
numbers.0 ~ numbers.1
person . name ~ person ['name']
9223372036854775807 ~ 0x1F ~ 0b101 ~ 0o17 ~ 1_000 ~ 1_0.5
(1, 2, 3)[1:] ~ (1,) ~ () ~ ((1)) ~ [1, 2,]
'it''s' ~ "a\\
b"
strftime_now('%d %b %Y %H:%M') ~ strftime_now('') ~ strftime_now('%%')
[[1, 2], [3]] | map('first') | list ~ [[1, 2], [3]] | map('length') | list ~ [{'a': 1}] | map('tojson') | list
numbers | map('string') | join ~ numbers | map('default', 1) | list
text | replace(',', ';') | replace(';', '', 1) | upper | list | join('') | length
'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1]
1 if
[1, 2
{'a' 1}
a b
5 | 
'abc
""".strip("\n").replace("a\\\\\nb", "a\\\nb").split("\n")

TEMPLATES = {
    "chatml": "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "loop": "{% for x in numbers %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.cycle('a', 'b') }}{{ loop.changed(x) }};{% endfor %}",
    "loop of generator": "{% for x in numbers | select('even') %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}{{ x }};{% else %}none{% endfor %}",
    "loop condition": "{% for x in numbers if x > 1 %}{{ loop.index }}{{ loop.last }}{{ loop.length }}{{ x }};{% endfor %}|{% for x in numbers if x > 9 %}x{% else %}else{% endfor %}",
    "loop condition is lazy": "{% set ns = namespace(n=0) %}{% for x in numbers if ns.n < 2 %}{{ x }}{% set ns.n = ns.n + 1 %}{% endfor %}|{% set ns.n = 0 %}{% for x in numbers if ns.n < 2 %}{{ x }}{{ loop.last }}{% set ns.n = ns.n + 1 %}{% endfor %}",
    "loop scope": "{% set x = 0 %}{% for i in numbers %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}{{ i }}",
    "loop targets": "{% for k, v in person.items() %}{{ k }}={{ v }};{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for k in person %}{{ k }}{% endfor %}{% for c in 'éb' %}[{{ c }}]{% endfor %}",
    "loop too few targets": "{% for a, b in [[1]] %}{% endfor %}",
    "loop of nothing": "{% for a in nothing %}x{% else %}none{% endfor %}{% for a in 5 %}{% endfor %}",
    "nested loops": "{% for r in rows %}{% set outer = loop %}{% for c in r.k ~ '12' %}{{ outer.index }}.{{ loop.index }}{{ c }} {% endfor %}{% endfor %}",
    "break": "{% for x in numbers %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% else %}never{% endfor %}|{% for x in numbers %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "break outside": "{% break %}",
    "recursive": "{% for x in numbers recursive %}{{ x }}{% endfor %}{% for %}",
    "if": "{% if numbers | length > 9 %}a{% elif nothing %}b{% elif person.ok %}c{% else %}d{% endif %}{% if not true %}x{% endif %}{% if none %}{% else %}y{% endif %}",
    "if has no scope": "{% if true %}{% set y = 1 %}{% endif %}{{ y }}",
    "set": "{% set a, b = 1, 2 %}{% set c = a, %}{% set (d, e) = [3, 4] %}{{ a }}{{ b }}{{ c }}{{ d }}{{ e }}",
    "set block": "{% set a %}x{{ numbers }}{% set inner = 5 %}{% endset %}{% set b | upper | trim %} y {% endset %}{{ a }}{{ b }}{{ inner }}{{ a | length }}",
    "namespace": "{% set ns = namespace(a=1, l=[]) %}{% for x in numbers %}{% set ns.a = ns.a + x %}{% set ns.l = ns.l + [x] %}{% endfor %}{{ ns.a }}{{ ns.l }}{{ ns.no is defined }}{{ ns['a'] }}",
    "no namespace": "{% set person.name = 1 %}",
    "private namespace": "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "macro": "{% macro f(a, b='x', c=none) %}[{{ a }}{{ b }}{{ c }}{{ numbers[0] }}]{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(c=3, a=1) }}{{ f() }}{{ f(1) | upper | length }}",
    "macro refuses": "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}",
    "macro refuses names": "{% macro f(a) %}{% endmacro %}{{ f(b=2) }}",
    "macro sees": "{% set x = 1 %}{% macro f() %}{{ x }}{{ y }}{% set x = 9 %}{% endmacro %}{{ f() }}{% set x = 2 %}{% set y = 3 %}{{ f() }}{{ x }}{% for z in [1] %}{{ f() }}{{ loop.index }}{% endfor %}",
    "macro calls itself": "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "macro in a loop": "{% for x in numbers %}{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% endfor %}",
    "stars": "{% macro f(a, b, c=9) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(*[1, 2]) }}{{ f(1, **{'b': 5, 'c': 6}) }}{{ f(*'ab', **{'c': 1}) }}{{ range(*[1, 4]) | list }}",
    "stars of a name twice": "{% macro f(a, b) %}{% endmacro %}{{ f(1, b=2, **{'b': 3}) }}",
    "select of none": "{{ none | selectattr('x') | list }}{{ none | map('upper') | list }}{{ 0 | reject | list }}{{ person.none | select | first is defined }}",
    "call": "{% macro box(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call box('b') %}in {{ numbers[0] }}{% endcall %}",
    "call with arguments": "{% macro each(l) %}{% for x in l %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(x, i) each(numbers) %}{{ i }}:{{ x }} {% endcall %}",
    "filter block": "{% filter upper | replace('A', 'b') %}aXa{{ numbers }}{% endfilter %}",
    "with": "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% set c = 5 %}{% endwith %}{{ a }}{{ b }}{{ c }}{% with %}{% set d = 1 %}{{ d }}{% endwith %}{{ d }}",
    "generation": "{% for m in messages %}{% generation %}{{ m.role }}{% set x = 1 %}{% endgeneration %}{{ x }}{% endfor %}",
    "white space": "a\n  {% if true %}\n  b\n  {%- if true -%}  \n c  {%- endif +%}\n  d\n    {# comment #}\n  e {# c -#}  \n f\n{%- set x = 1 %}\n\n{%+ if true %}\ng\n  {%+ endif %}\nh  {{- ' i ' -}}  j\n  {{ 'k' }}\n l\n",
    "white space at the ends": "\n  {% if true %}x{% endif %}  \n\n",
    "carriage returns": "a\r\nb\rc\n{% if true %}\r\nd{% endif %}\r\n",
    "plus": "x {%+ if true +%}\n y\n  {%+ endif %} z",
    "raw": "{% raw %}{{ no }}{% if %}{# c #}{% endraw %}|\n  {%- raw -%}  a {{ b }}  {%- endraw -%}  |  {% raw %}\nx\n  {% endraw %}\ny",
    "raw does not end": "{% raw %} x",
    "comments": "a{# {{ no }} {% if %} #}b{#- c -#} d{##}e{#--#}f",
    "comment does not end": "a{# b",
    "braces": "{ {a} } {{ '{' ~ '}}' }} {{ {'a': {'b': 1}}['a'] }} { % } # }",
    "quotes in tags": "{{ '%}' }}{% if '}}' == \"}}\" %}{{ \"a'b\" }}{% endif %}",
    "unknown tag": "{% nosuch %}",
    "else alone": "{% else %}",
    "if does not end": "{% if true %}a",
    "wrong end": "{% if true %}{% endfor %}",
    "wrong bracket": "{{ (1] }}",
    "tools": "{%- if tools %}{{ tools | tojson(indent=4) }}{% else %}no tools{% endif %}{% for m in messages %}{% if m.tool_calls is defined and m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}({% for k, v in c.function.arguments | items %}{{ k }}={{ v | tojson if v is not string else v }}{{ ', ' if not loop.last }}{% endfor %}){% endfor %}{% endif %}{% endfor %}",
    "content parts": "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}",
    "alternate": "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate: ' ~ m.role) }}{% endif %}{% endfor %}",
    "date": "{% if not date_string is defined %}{% if strftime_now is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% else %}{% set date_string = '26 Jul 2024' %}{% endif %}{% endif %}{{ date_string }}",
    "thinking": "{% for m in messages %}{% set c = m.content %}{% if '</think>' in c %}{% set c = c.split('</think>')[-1].lstrip('\n') %}{% endif %}{{ c }}{% endfor %}{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>{% endif %}",
    "generators are read once": "{% set g = numbers | select('odd') %}{{ g | list }}{{ g | list }}{{ 'yes' if g }}{% set h = numbers | map('string') %}{{ h | first }}{{ h | join }}{{ '2' in rows | map(attribute='n') }}",
    "reverse messages": "{% for m in messages[::-1] %}{{ m.role }}{% endfor %}{% for m in messages | reverse %}{{ m.role }}{{ loop.index }}{% endfor %}",
    "unpack dict": "{% set a, b = {'x': 1, 'y': 2} %}{{ a }}{{ b }}",
    "include": "{{ 1 }}{% include 'x' %}",
    "joined macro": "{% macro t(x) -%}\n  {{ x }}\n{%- endmacro %}{{ t(1) ~ t(2) + '!' }}",
    "deep values": "{% set ns = namespace(x=[]) %}{% for i in range(150) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | string | length }}",
    "mutable default": "{% set a = [1] %}{% set b = a + [2] %}{{ a }}{{ b }}",
    "none first": "{{ none or 'x' }}{{ 0 or [] or 'y' }}{{ 'a' and 'b' }}{{ [] and 1 }}",
}

TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather <now> & \"here\"", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "A city", "enum": ["Paris", "Zürich"]},
                                     "days": {"type": ["integer", "null"], "default": 3},
                                     "where": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
                                     "list": {"type": "array", "items": {"type": "string"}}},
    "required": ["city"]}, "return": {"type": "string"}}}
USER = {"role": "user", "content": "Hello there, Zoë!"}
ANSWER = {"role": "assistant", "content": " Hi!\n\nHow are you? "}
SYSTEM = {"role": "system", "content": "You are kind."}
CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": {"city": "Paris", "days": 2}}}]}
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "name": "weather", "content": "{\"t\": 21.5}"}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
CHATS = {
    "one": {"messages": [USER], "add_generation_prompt": True},
    "many": {"messages": [SYSTEM, USER, ANSWER, USER], "add_generation_prompt": True},
    "no prompt": {"messages": [USER, ANSWER], "add_generation_prompt": False},
    "tools": {"messages": [SYSTEM, USER], "tools": [TOOL, TOOL], "add_generation_prompt": True},
    "calls": {"messages": [USER, CALL, RESULT, ANSWER, USER], "tools": [TOOL], "add_generation_prompt": True},
    "calls as text": {"messages": [USER, {**CALL, "tool_calls": [{**CALL["tool_calls"][0], "function": {
        "name": "weather", "arguments": "{\"city\": \"Paris\"}"}}]}, RESULT], "tools": [TOOL], "add_generation_prompt": True},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}, {"type": "image"}]}],
              "add_generation_prompt": True},
    "thinking": {"messages": [USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."}, USER],
                 "enable_thinking": False, "thinking": True, "add_generation_prompt": True},
    "reasoning": {"messages": [USER, {"role": "assistant", "reasoning_content": "hm", "thinking": "hm", "content": "Yes."}, USER],
                  "enable_thinking": True, "reasoning_effort": "high", "add_generation_prompt": True},
    "documents": {"messages": [USER], "documents": [{"title": "T", "text": "x", "doc_id": 1}], "add_generation_prompt": True},
    "wrong order": {"messages": [ANSWER, USER, USER], "add_generation_prompt": False},
    "null": {"messages": [{"role": "user", "content": None}], "add_generation_prompt": True},
}
