//! Tests of what spans and events become in OpenTelemetry and in tokio-console.
