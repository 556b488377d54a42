"""Leases and turns decide who may write, publications decide which rows count; notes are beside the lake."""
