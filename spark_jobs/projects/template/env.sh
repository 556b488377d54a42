# Settings of this project: `source env.sh` in its folder. Each other setting has a default (docs: Settings).
export TIDEMARK_HOME="$PWD/.tidemark"
export TIDEMARK_SOURCES="$PWD/sources"
export TIDEMARK_LANDING="$PWD/landing"
export TIDEMARK_DBT="$PWD/dbt"
