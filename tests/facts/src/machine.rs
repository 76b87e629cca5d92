//! Runs the steps of a fact, one after the other.

use std::collections::BTreeMap;
use std::ffi::CString;

use crate::codes;
use crate::driver::{self, Driver};
use crate::script::{ARGUMENTS, Operand, Part, SIZE, Step};

/// Outcome of a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Holds,
    /// The driver has no function of this name.
    Absent(String),
    /// The step, and what was found instead.
    Broken(String),
}

/// Storage of a variable: as aligned as any structure of the driver wants.
#[repr(C, align(64))]
struct Storage([u8; SIZE]);

/// Variables, texts that calls refer to, and the driver.
pub(crate) struct Machine {
    driver: Driver,
    variables: BTreeMap<String, Box<Storage>>,
    texts: Vec<CString>,
}

impl Machine {
    pub(crate) fn new(driver: Driver, constants: &[(&str, &str)]) -> Self {
        let mut machine = Self { driver, variables: BTreeMap::new(), texts: Vec::new() };
        for (name, text) in constants {
            let text = CString::new(*text).unwrap_or_default();
            let address = text.as_ptr() as u64;
            machine.texts.push(text);
            machine.write(name, 0, 8, address);
        }
        machine
    }

    /// Runs all steps up to the first that does not hold.
    pub(crate) fn run(&mut self, steps: &[Step]) -> Outcome {
        for (number, step) in steps.iter().enumerate() {
            match self.step(step) {
                Outcome::Holds => {}
                Outcome::Broken(how) => return Outcome::Broken(format!("step {}: {how}", number + 1)),
                absent @ Outcome::Absent(_) => return absent,
            }
        }
        Outcome::Holds
    }

    /// The first 8 bytes of a variable.
    pub(crate) fn variable(&mut self, variable: &str) -> u64 {
        self.read(&Part { variable: variable.to_owned(), offset: 0, width: 8 })
    }

    fn step(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Call { function, arguments, expected, bare } => {
                if !self.driver.has(function) {
                    return Outcome::Absent(function.clone());
                }
                let result = self.call(function, arguments, *bare);
                if expected.allows(result) {
                    return Outcome::Holds;
                }
                let shown = codes::name(function, result);
                Outcome::Broken(format!("{function} returned {shown}, expected {expected:?}"))
            }
            Step::Fill { variable, fields } => {
                let mut offset = 0;
                for (width, value) in fields {
                    let value = self.value(value);
                    self.write(variable, offset, (*width).min(8), value);
                    offset += width;
                }
                Outcome::Holds
            }
            Step::Check { left, comparison, right } => {
                let (found, wanted) = (self.value(left), self.value(right));
                if comparison.holds(found, wanted) {
                    return Outcome::Holds;
                }
                Outcome::Broken(format!("{left:?} is {found:#x}, expected {comparison:?} {wanted:#x}"))
            }
            Step::Text { address, text } => {
                let found = driver::text(self.value(address));
                if found.as_deref() == Some(text) {
                    return Outcome::Holds;
                }
                Outcome::Broken(format!("the text is {found:?}, expected {text:?}"))
            }
        }
    }

    fn call(&mut self, function: &str, operands: &[Operand], bare: bool) -> i32 {
        let mut arguments = [0; ARGUMENTS];
        for (argument, operand) in arguments.iter_mut().zip(operands) {
            *argument = self.value(operand);
        }
        let driver = &mut self.driver;
        let result = if bare {
            let thread = |driver: &mut Driver| driver.call(function, &arguments);
            std::thread::scope(|scope| scope.spawn(move || thread(driver)).join()).ok().flatten()
        } else {
            driver.call(function, &arguments)
        };
        // It was looked up before.
        result.unwrap_or(i32::MIN)
    }

    fn value(&mut self, operand: &Operand) -> u64 {
        match operand {
            Operand::Number(number) => *number,
            Operand::Value(part) => self.read(part),
            Operand::Address(variable, offset) => self.storage(variable).0.as_ptr() as u64 + *offset as u64,
            Operand::Text(text) => {
                let text = CString::new(text.as_str()).unwrap_or_default();
                let address = text.as_ptr() as u64;
                self.texts.push(text);
                address
            }
        }
    }

    fn read(&mut self, part: &Part) -> u64 {
        let bytes = &self.storage(&part.variable).0[part.offset..part.offset + part.width];
        let mut value = [0; 8];
        value[..part.width].copy_from_slice(bytes);
        // The driver wrote there behind the compiler's back.
        std::hint::black_box(u64::from_le_bytes(value))
    }

    fn write(&mut self, variable: &str, offset: usize, width: usize, value: u64) {
        self.storage(variable).0[offset..offset + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }

    fn storage(&mut self, variable: &str) -> &mut Storage {
        if !self.variables.contains_key(variable) {
            self.variables.insert(variable.to_owned(), Box::new(Storage([0; SIZE])));
        }
        std::hint::black_box(self.variables.get_mut(variable).expect("it was put there"))
    }
}
