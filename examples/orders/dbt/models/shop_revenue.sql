select
    shop,
    window_start as day,
    booked,
    sum(booked) over (partition by shop order by window_start) as booked_so_far
from {{ source('silver', 'bookings_daily') }}
