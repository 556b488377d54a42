select
    aircraft,
    flights,
    miles,
    delay_minutes / flights as mean_delay
from {{ source('gold', 'departures') }}
where flights > 0
