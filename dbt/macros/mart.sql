{#
  The materialization of marts: a Delta table that follows the publication of one source, one commit per build. People
  see a version of it once its tests have passed.

  The model is a plain query of published names: the whole mart. A mart that stands is brought up to date in one commit:
  - with `range`, by replacing the rows of the range of starts in which the publications since then changed a window;
  - without, by replacing all rows: where changes hit rows in no order, every file would be rewritten anyway. So are those
    of a small mart, which takes half of the time.

  A commit's userMetadata says which publication the mart reflects and holds a hash of the model; another hash, or none,
  and all rows are replaced. Config: `follows` (the source), `range` (`column` of the mart, `history` table and `start`
  column there that tell what changed).
#}
{% materialization mart, adapter='spark' %}
  {%- set target = this.incorporate(type='table') -%}
  {%- set model_hash = local_md5(compiled_code) -%}
  {%- set standing = mart_standing(target) -%}
  {%- set stands = standing is not none and standing.columns == mart_columns() -%}
  {%- set published = mart_published(config.require('follows')) -%}
  {%- set changed = mart_changed_range(standing, model_hash) if stands else none -%}

  {{ run_hooks(pre_hooks) }}

  {%- if not stands -%}
    {%- call statement('create') -%} {{ mart_create_sql(target) }} {%- endcall -%}
  {%- endif -%}
  {%- call statement('note') -%}
    set spark.databricks.delta.commitInfo.userMetadata = {{ tojson({'published': published, 'model': model_hash}) }}
  {%- endcall -%}
  {%- call statement('main') -%} {{ mart_write_sql(target, compiled_code, changed) }} {%- endcall -%}

  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}


{# One statement that puts the mart's rows in place: all of them, or those of the range `changed`. #}
{% macro mart_write_sql(target, compiled_code, changed) -%}
  {%- set columns = model.columns.keys() | join(', ') -%}
  {%- if changed is not none and changed.first is none -%}
    select 'no window changed since the mart was written'
  {%- elif changed is none or env_var('TIDEMARK_SMALL', 'false') == 'true' -%}
    insert overwrite {{ target }} select {{ columns }} from (
    {{ compiled_code }}
    )
  {%- else -%}
    {%- set column = config.get('range').column -%}
    {%- set within = column ~ ' >= timestamp_micros(' ~ changed.first ~ ') and ' ~ column ~ ' <= timestamp_micros(' ~ changed.last ~ ')' -%}
    insert into {{ target }} replace where {{ within }} select {{ columns }} from (
    {{ compiled_code }}
    ) where {{ within }}
  {%- endif -%}
{%- endmacro %}


{#
  The first and last start (microseconds) that changed since the mart was written; none: all rows must be replaced. As the
  pipeline says that runs this, else as the lake says.
#}
{% macro mart_changed_range(standing, model_hash) -%}
  {%- set range = config.get('range') -%}
  {#- what people do not see failed a test, or was written by somebody else: nothing of it is kept -#}
  {%- set follows_on = range and standing.shown and standing.model == model_hash and not should_full_refresh() -%}
  {%- set reflected = standing.published if follows_on else none -%}
  {%- if reflected is none -%} {{ return(none) }} {%- endif -%}
  {%- set passed = fromjson(env_var('TIDEMARK_CHANGES', '{}')).get(range.history | join('.'), {}).get(reflected | string) -%}
  {%- if passed is not none and range.start == 'window_start' -%}
    {{ return({'first': passed[0], 'last': passed[1]}) }}
  {%- endif -%}
  {#- rows that no publication shows yet only widen the range -#}
  {%- set bounds = run_query(
    "select unix_micros(min(" ~ range.start ~ ")) as first, unix_micros(max(" ~ range.start ~ ")) as last from "
    ~ source(range.history[0], range.history[1]) ~ " where known_from >= timestamp_micros(" ~ reflected ~ ")"
    ~ " or known_to >= timestamp_micros(" ~ reflected ~ ")"
  )[0] -%}
  {{ return({'first': bounds['first'], 'last': bounds['last']}) }}
{%- endmacro %}


{# `published` of a source in microseconds: as the pipeline says that runs this, else as the lake says. #}
{% macro mart_published(follows) -%}
  {%- set told = env_var('TIDEMARK_PUBLISHED_US', '') -%}
  {%- if told -%} {{ return(told | int) }} {%- endif -%}
  {%- set rows = run_query(
    "select unix_micros(published) from " ~ source('trace', 'published') ~ " where source = '" ~ follows ~ "'"
  ) -%}
  {%- if rows | length == 0 -%}
    {{ exceptions.raise_compiler_error("expected a publication of " ~ follows ~ ", found none; run its pipeline first") }}
  {%- endif -%}
  {{ return(rows[0][0] | int) }}
{%- endmacro %}


{#
  What stands of a mart, as the pipeline says that runs this (`StandingMart`); none if there is no table. Who runs dbt by
  hand is told the columns alone, and writes the mart whole.
#}
{% macro mart_standing(relation) -%}
  {%- set passed = fromjson(env_var('TIDEMARK_MARTS', '{}')) -%}
  {%- if relation.identifier in passed -%} {{ return(passed[relation.identifier]) }} {%- endif -%}
  {%- set named = run_query("show tables in " ~ relation.schema ~ " like '" ~ relation.identifier ~ "'") -%}
  {%- if named | length == 0 -%} {{ return(none) }} {%- endif -%}
  {%- set columns = [] -%}
  {%- for column in adapter.get_columns_in_relation(relation) -%}
    {%- do columns.append(column.name ~ ' ' ~ column.dtype) -%}
  {%- endfor -%}
  {{ return({'columns': columns, 'published': none, 'model': none, 'shown': false}) }}
{%- endmacro %}


{# The columns that the model's YAML declares, with their types. #}
{% macro mart_columns() -%}
  {%- set declared = [] -%}
  {%- for column in model.columns.values() -%} {%- do declared.append(column.name ~ ' ' ~ column.data_type) -%} {%- endfor -%}
  {{ return(declared) }}
{%- endmacro %}


{% macro mart_create_sql(target) -%}
create or replace table {{ target }} (
  {%- for column in model.columns.values() %}
  {{ column.name }} {{ column.data_type }} comment '{{ mart_escaped(column.description) }}'{{ ',' if not loop.last }}
  {%- endfor %}
) using delta
comment '{{ mart_escaped(model.description) }}'
tblproperties ('delta.enableDeletionVectors' = 'false')
{%- endmacro %}


{% macro mart_escaped(text) -%}
  {{- text | replace("\\", "\\\\") | replace("'", "\\'") | replace("\n", " ") | trim -}}
{%- endmacro %}
