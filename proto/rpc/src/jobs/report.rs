//! Conversions of reports, their rows and their queries.

use tranche_domain::jobs::{Report, ReportKey, ReportQuery, ReportRow};

use crate::mirror::{enumeration, mirror};
use crate::v1;

enumeration! { ReportKey = v1::ReportKey, ReportKey: Project, User, Job, Gpu }

mirror! {
    ReportQuery = v1::ShowReportRequest { since_unix_ms, until_unix_ms, by, step_hours }

    Report = v1::ShowReportResponse { from_unix_ms, until_unix_ms, rows }

    ReportRow = v1::ReportRow {
        from_unix_ms, project, uid, name, gpu, allocated_milligpu_ms, idle_milligpu_ms, borrowed_milligpu_ms, used_us, starts,
        preemptions, waits, wait_median_ms, wait_p95_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bad_message::BadMessage;
    use tranche_domain::id::GpuUuid;

    #[test]
    fn a_report_survives_the_wire() {
        let row = ReportRow {
            from_unix_ms: 1,
            project: Some("a".parse().unwrap()),
            uid: Some(2),
            name: Some("slice:x".into()),
            gpu: Some(GpuUuid::from_bytes([3; 16])),
            allocated_milligpu_ms: 4,
            idle_milligpu_ms: 5,
            borrowed_milligpu_ms: 6,
            used_us: 7,
            starts: 8,
            preemptions: 9,
            waits: 10,
            wait_median_ms: Some(11),
            wait_p95_ms: Some(12),
        };
        let report = Report { from_unix_ms: 13, until_unix_ms: 14, rows: vec![row, ReportRow::default()] };
        assert_eq!(Report::try_from(v1::ShowReportResponse::from(report.clone())), Ok(report));
        let query = ReportQuery { since_unix_ms: 1, until_unix_ms: 2, by: ReportKey::Gpu, step_hours: 24 };
        assert_eq!(ReportQuery::try_from(v1::ShowReportRequest::from(query)), Ok(query));
    }

    #[test]
    fn unknown_grouping_is_refused() {
        let wire = v1::ShowReportRequest { by: 77, ..Default::default() };
        assert_eq!(ReportQuery::try_from(wire), Err(BadMessage::ReportKey(77)));
    }
}
