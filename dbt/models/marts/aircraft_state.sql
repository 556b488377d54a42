{{ config(
    tags=['flights'],
    follows='flights'
) }}

-- the state's own timestamp is of its last delta, which may be a flight that never left; a rotation ends with a departure
with departures as (
    select
        tailnum,
        max(session_end) as last_departed
    from {{ ref('aircraft_rotations') }}
    group by tailnum
)

select
    state.tailnum,
    state.flights,
    state.air_minutes,
    state.miles,
    state.delay_minutes,
    departures.last_departed
from {{ source('gold', 'flights') }} as state
left join departures
    on state.tailnum = departures.tailnum
