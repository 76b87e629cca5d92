//! `--query-slice` and `--query-gpu`: chosen fields as CSV, for scripts that know nvidia-smi's.

use tranche_domain::view::NodeView;

use super::parts::by_gpu;
use crate::cli::Format;
use crate::table::quoted;

mod field;
mod fields;

use field::{Field, OfGpu, OfSlice};

pub use field::UnknownField;
pub use fields::{GPU_FIELDS, SLICE_FIELDS};

/// Selected fields and format of a query.
pub struct Query {
    fields: Fields,
    form: Form,
}

enum Fields {
    OfSlices(Vec<&'static Field<OfSlice>>),
    OfGpus(Vec<&'static Field<OfGpu>>),
}

/// Optional parts of the CSV format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    header: bool,
    units: bool,
}

impl Query {
    /// The named fields of every slice on each of its GPUs.
    pub fn slices(names: &[String], format: &[Format]) -> Result<Self, UnknownField> {
        let fields = chosen("query-slice", &SLICE_FIELDS, names)?;
        Ok(Self { fields: Fields::OfSlices(fields), form: Form::of(format) })
    }

    /// The named fields of every GPU.
    pub fn gpus(names: &[String], format: &[Format]) -> Result<Self, UnknownField> {
        let fields = chosen("query-gpu", &GPU_FIELDS, names)?;
        Ok(Self { fields: Fields::OfGpus(fields), form: Form::of(format) })
    }

    /// The result for `node`: a line for each slice's part of a GPU, or for each GPU.
    pub fn answer(&self, node: &NodeView) -> String {
        match &self.fields {
            Fields::OfSlices(fields) => {
                let rows = by_gpu(node).into_iter();
                let row = |(slice, _, device)| self.form.line(fields, |value| value(slice, device));
                self.form.csv(fields, rows.map(row))
            }
            Fields::OfGpus(fields) => {
                let row = |gpu| self.form.line(fields, |value| value(node, gpu));
                self.form.csv(fields, node.gpus.iter().map(row))
            }
        }
    }
}

impl Form {
    fn of(format: &[Format]) -> Self {
        Self { header: !format.contains(&Format::NoHeader), units: !format.contains(&Format::NoUnits) }
    }

    fn csv<V>(self, fields: &[&Field<V>], rows: impl Iterator<Item = String>) -> String {
        let header = self.header.then(|| line(fields.iter().map(|field| field.title())));
        header.into_iter().chain(rows).collect()
    }

    fn line<V>(self, fields: &[&Field<V>], find: impl Fn(&V) -> Option<String>) -> String {
        line(fields.iter().map(|field| match find(&field.value) {
            None => "[N/A]".into(),
            Some(value) if self.units && !field.unit.is_empty() => format!("{value} {}", field.unit),
            Some(value) => value,
        }))
    }
}

fn chosen<V>(
    option: &'static str,
    known: &'static [Field<V>],
    names: &[String],
) -> Result<Vec<&'static Field<V>>, UnknownField> {
    let find = |wanted: &String| {
        known.iter().find(|field| field.name == wanted.trim()).ok_or_else(|| UnknownField {
            option,
            wanted: wanted.clone(),
            known: known.iter().map(|field| field.name).collect(),
        })
    };
    names.iter().map(find).collect()
}

/// Values with nvidia-smi's separator; a value that contains the separator is quoted.
fn line(values: impl Iterator<Item = String>) -> String {
    let values: Vec<_> = values.map(|value| quoted(&value)).collect();
    values.join(", ") + "\n"
}

/// Descriptions of the fields, a line for each.
pub fn help<V>(fields: &[Field<V>]) -> String {
    fields.iter().map(|field| format!("{:<24}{}\n", field.title(), field.about)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn names(list: &str) -> Vec<String> {
        list.split(',').map(Into::into).collect()
    }

    fn slices(list: &str, format: &[Format]) -> String {
        Query::slices(&names(list), format).unwrap().answer(&sample::node())
    }

    #[test]
    fn slices_are_answered_as_nvidia_smi_answers() {
        assert_eq!(
            slices("name,gpu,memory.used,memory.total,utilization.gpu", &[Format::Csv]),
            "name, gpu, memory.used [MiB], memory.total [MiB], utilization.gpu [%]\n\
             frac03, 0, 0 MiB, 9753 MiB, [N/A]\n\
             frac05, 0, 8500 MiB, 16255 MiB, 40 %\n\
             pair, 1, 0 MiB, 32510 MiB, [N/A]\n\
             pair, 2, 64 MiB, 32510 MiB, [N/A]\n"
        );
    }

    #[test]
    fn a_slices_pod_and_its_processes_on_both_sides_are_answered() {
        let fields = "name,namespace,pod,container,pod.uid,pids,pids.inside";
        let answer = slices(fields, &[Format::Csv, Format::NoHeader]);
        let lines: Vec<_> = answer.lines().take(2).collect();
        assert_eq!(lines[0], "frac03, [N/A], [N/A], [N/A], [N/A], , ");
        assert_eq!(lines[1], "frac05, default, train-0, main, 7-a, 4242, 7");
    }

    #[test]
    fn header_and_units_can_be_left_out() {
        let bare = slices("name,memory.used", &[Format::Csv, Format::NoHeader, Format::NoUnits]);
        assert_eq!(bare, "frac03, 0\nfrac05, 8500\npair, 0\npair, 64\n");
        let headed = slices("memory.used", &[Format::Csv, Format::NoUnits]);
        assert!(headed.starts_with("memory.used [MiB]\n0\n"), "{headed}");
    }

    #[test]
    fn gpus_are_answered_with_what_is_known() {
        let query = Query::gpus(&names("index,power.draw,compute.committed,slices,sliceable"), &[]).unwrap();
        assert_eq!(
            query.answer(&sample::node()),
            "index, power.draw [W], compute.committed [%], slices, sliceable\n\
             0, 54.32 W, 80 %, 2, true\n\
             1, 54.32 W, 80 %, 1, true\n\
             2, 54.32 W, 80 %, 1, true\n\
             3, [N/A], 0 %, 0, false\n"
        );
    }

    #[test]
    fn a_value_with_a_comma_is_quoted() {
        assert_eq!(line(["a, \"b\"".to_owned(), "c".to_owned()].into_iter()), "\"a, \"\"b\"\"\", c\n");
    }

    #[test]
    fn an_unknown_field_names_the_known_ones() {
        let unknown = Query::slices(&names("name,colour"), &[]).err().unwrap().to_string();
        assert!(
            unknown.starts_with("\"colour\" is not a field of --query-slice; these are: name, gpu,"),
            "{unknown}"
        );
        assert!(unknown.contains("--help-query-slice"), "{unknown}");
    }

    #[test]
    fn every_field_has_an_answer_and_a_meaning() {
        for field in &SLICE_FIELDS {
            assert!(!slices(field.name, &[]).is_empty());
        }
        assert_eq!(help(&GPU_FIELDS).lines().count(), GPU_FIELDS.len());
    }
}
