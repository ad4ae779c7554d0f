//! The key `log`.

use ringmain_gateway::model::ProcessLogFormat;

use super::errors::check_errors;
use super::valid_config;

#[test]
fn the_process_log_is_text_or_json() {
    let format = |log: &str| {
        let config = valid_config(&format!("listen: :80\nto: http://127.0.0.1:1\n{log}\n"));
        config.process_log.format
    };
    assert_eq!(format(""), ProcessLogFormat::Text);
    assert_eq!(format("log: {}"), ProcessLogFormat::Text);
    assert_eq!(format("log: {format: text}"), ProcessLogFormat::Text);
    assert_eq!(format("log: {format: json}"), ProcessLogFormat::Json);
    check_errors(
        "listen: :80\nto: http://127.0.0.1:1\nlog: {format: logfmt}\n",
        &["3:15: expected one of `text`, `json`, found `logfmt`"],
    );
}
