{# Each combination of `columns` stands once and none of them is null: both in one query. #}
{% test grain(model, columns) %}

select {{ columns | join(', ') }}
from {{ model }}
group by {{ columns | join(', ') }}
having count(*) > 1
{%- for column in columns %} or {{ column }} is null{% endfor %}

{% endtest %}
