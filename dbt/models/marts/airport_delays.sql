{{ config(
    tags=['flights'],
    follows='flights',
    range={'column': 'window_start', 'history': ['silver', 'departure_delays_history'], 'start': 'window_start'}
) }}

select
    origin,
    window_start,
    window_end,
    departures,
    mean_delay,
    max_delay
from {{ source('silver', 'departure_delays') }}
