{{ config(
    tags=['flights'],
    follows='flights',
    range={'column': 'session_start', 'history': ['silver', 'rotations_history'], 'start': 'window_start'}
) }}

select
    tailnum,
    window_start as session_start,
    window_end as session_end,
    flights,
    air_minutes
from {{ source('silver', 'rotations') }}
