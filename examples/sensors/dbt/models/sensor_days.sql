select
    sensor,
    date_trunc('day', window_start) as day,
    count(*) as hours,
    sum(readings) as readings,
    min(mean_temperature) as coldest_hour,
    max(mean_temperature) as warmest_hour,
    sum(case when revision > 0 then 1 else 0 end) as hours_restated
from {{ source('silver', 'sensors_hourly') }}
group by sensor, date_trunc('day', window_start)
