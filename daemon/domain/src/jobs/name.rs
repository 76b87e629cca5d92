//! Names of projects and jobs, which become part of slice names, paths and labels.

use crate::word::{is_part, word};

word! {
    /// Name of a project. Together with a job name and a member number it fits a slice name of 63 bytes.
    ProjectName,
    "the name of a project",
    "1 to 24 of a-z, 0-9 and '-', beginning and ending with a letter or digit",
    |text| text.len() <= 24 && is_part(text)
}

word! {
    /// Name of a job, unique in its project.
    JobName,
    "the name of a job",
    "1 to 31 of a-z, 0-9 and '-', beginning and ending with a letter or digit",
    |text| text.len() <= JobName::MOST_BYTES && is_part(text)
}

impl JobName {
    /// Maximum length of a name in bytes.
    pub const MOST_BYTES: usize = 31;
}

impl ProjectName {
    /// Project of slices whose owners are in no project.
    pub fn default_project() -> Self {
        "default".parse().expect("it is a valid name")
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn invalid_name_is_rejected_with_its_rule() {
        assert_eq!("team-a".parse::<ProjectName>().unwrap().as_str(), "team-a");
        for text in ["", "-a", "a-", "A", "a.b", "a_b", "a/b", "a234567890123456789012345"] {
            let refused = text.parse::<ProjectName>().unwrap_err().to_string();
            assert!(refused.contains("project") && refused.contains("24"), "{refused}");
        }
        assert!("a-name-of-thirty-two-characters-".parse::<JobName>().is_err());
    }
}
