"""Where results leave the log: the Parquet lake with its DuckDB views, alerts, exporters."""
