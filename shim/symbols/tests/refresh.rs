//! A newer driver's names are appended once, as unclassified, on which the table's own test fails.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

#[test]
fn unknown_names_are_appended_as_unclassified() {
    let folder = tempfile::tempdir().unwrap();
    let [source, library, table] =
        ["driver.c", "libcuda.so.1", "table.tsv"].map(|name| folder.path().join(name));
    fs::write(&source, "int cuInit(void) { return 0; } int cuNewest_v2(void) { return 0; }").unwrap();
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-nostdlib", "-o"]).args([&library, &source]).status();
    assert!(built.unwrap().success());
    fs::write(&table, "# head\ncuInit\tgoverned\n").unwrap();
    for _ in 0..2 {
        assert!(Command::new(program()).args([&library, &table]).status().unwrap().success());
        let text = fs::read_to_string(&table).unwrap();
        assert_eq!(text, "# head\ncuInit\tgoverned\n# from libcuda.so.1\ncuNewest_v2\tunclassified\n");
    }
}

#[test]
fn invalid_library_is_refused_without_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("table.tsv");
    fs::write(&table, "cuInit\tgoverned\n").unwrap();
    let outcome = Command::new(program()).args([&table, &table]).output().unwrap();
    assert!(!outcome.status.success());
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("cannot refresh from"), "{outcome:?}");
    assert_eq!(fs::read_to_string(&table).unwrap(), "cuInit\tgoverned\n");
}

/// Cargo builds examples before tests, and puts them beside.
fn program() -> PathBuf {
    let own = std::env::current_exe().expect("a test knows where it is");
    own.ancestors().nth(2).expect("tests lie in <target>/<profile>/deps").join("examples/refresh")
}

#[test]
fn unknown_enumerators_are_appended() {
    let folder = tempfile::tempdir().unwrap();
    let [header, table] = ["cuda.h", "table.tsv"].map(|name| folder.path().join(name));
    let declared = "typedef enum CUold_enum {\n CU_OLD_A = 1,\n CU_OLD_B = 0x2,\n CU_OLD_MAX = 0x7F\n} CUold;\n\
                    typedef enum CUother_enum {\n CU_OTHER = 1\n} CUother;\n";
    fs::write(&header, declared).unwrap();
    fs::write(&table, "# head\nCUold\tCU_OLD_A\t1\thost\n").unwrap();
    let program = program().with_file_name("refresh_enumerators");
    for _ in 0..2 {
        assert!(Command::new(&program).args([&header, &table]).status().unwrap().success());
        let text = fs::read_to_string(&table).unwrap();
        assert_eq!(text, "# head\nCUold\tCU_OLD_A\t1\thost\nCUold\tCU_OLD_B\t2\tunclassified\n");
    }
    fs::write(&header, "nothing").unwrap();
    let outcome = Command::new(&program).args([&header, &table]).output().unwrap();
    assert!(!outcome.status.success() && String::from_utf8_lossy(&outcome.stderr).contains("cannot refresh"));
}
