{{ config(
    tags=['weather'],
    follows='weather'
) }}

select
    origin,
    timestamp as observed_at,
    temp,
    dewp,
    humid,
    wind_dir,
    wind_speed,
    wind_gust,
    precip,
    pressure,
    visib
from {{ source('gold', 'weather') }}
