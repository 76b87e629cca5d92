//! Macros by which the table of governed functions becomes exported functions.

macro_rules! hooks {
    ($($library:ident in $feature:tt { $($since:literal $name:ident($($argument:ident: $type:ty),*) => $([$how:ident])? $($body:ident)::+ $(::<$table:ident>)? $(($($given:expr),*))?;)* })*) => {
        /// A governed function, by its row.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Hook { $($($name,)*)* }

        static ROWS: &[(Hook, c_int)] = &[$($((Hook::$name, $since),)*)*];

        static NAMES: [SymbolName; ROWS.len()] =
            [$($(SymbolName::new(Library::$library, stringify!($name)),)*)*];
        static REAL: [RealAddress; ROWS.len()] = unresolved();

        impl Governed for Hook {
            const KNOWN_VERSION: c_int = KNOWN_VERSION;

            fn rows() -> &'static [(Self, c_int)] {
                ROWS
            }

            #[inline(always)]
            fn symbol(self) -> Symbol {
                Symbol::new(&NAMES[self as usize], &REAL[self as usize])
            }

            fn address(self) -> *mut c_void {
                match self { $($(Self::$name => exported::$name as *mut c_void,)*)* }
            }
        }

        /// The exported functions, under the driver's names.
        mod exported {
            use super::*;
            $($(
                export! { $([$how])? $library $feature $name($($argument: $type),*) => $($body)::+ $(::<$table>)? $(($($given),*))? }
            )*)*
        }
    };
}

/// Exports the function of one row.
///
/// A launch, `[jump]`, takes a few instructions and jumps to the driver as long as its thread has launches left, or
/// else to the function that the row would have without that. So does a copy or fill, `[transfer]`, as long as it is
/// not counted.
macro_rules! export {
    ([jump] $($row:tt)*) => { export! { in_passing jump $($row)* } };
    ([transfer] $($row:tt)*) => { export! { in_passing pass $($row)* } };
    (in_passing $way:ident $library:ident $feature:tt $name:ident($($argument:ident: $type:ty),*) => $($call:tt)*) => {
        #[allow(clippy::too_many_arguments, reason = "the driver's")]
        #[cfg_attr(all(panic = "abort", any(feature = "preload", feature = $feature)), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            mod slow {
                use super::*;
                with_real! { $library $name($($argument: $type),*) => $($call)* }
            }
            $way!(slow::$name, REAL, Hook::$name as usize * size_of::<RealAddress>())
        }
    };
    ([made] $library:ident $feature:tt $name:ident($($argument:ident: $type:ty),*) => $($call:tt)*) => {
        export! { $library $feature $name($($argument: $type),*) => [made] $($call)* }
    };
    ($library:ident $feature:tt $name:ident($($argument:ident: $type:ty),*) => $($call:tt)*) => {
        with_real! {
            #[cfg_attr(all(panic = "abort", any(feature = "preload", feature = $feature)), unsafe(no_mangle))]
            $library $name($($argument: $type),*) => $($call)*
        }
    };
}

/// A function that resolves the real one and passes it to the body, with the program's arguments.
macro_rules! with_real {
    ($(#[$exported:meta])? $library:ident $name:ident($($argument:ident: $type:ty),*) => $($call:tt)*) => {
        #[allow(clippy::too_many_arguments, reason = "the driver's")]
        $(#[$exported])?
        pub(super) unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            let Some(real) = Hook::$name.symbol().real() else { return Library::$library.absent() };
            // SAFETY: the driver's function of this name has the type of this row, which is its published one. The
            // program called the hook by the same contract, so its arguments are valid for the real function; the
            // body checks those that it reads, and a `made` row writes only where the address is not null.
            unsafe {
                let real: unsafe extern "C" fn($($type),*) -> c_int = core::mem::transmute(real);
                if Library::$library.is_ours() {
                    return real($($argument),*);
                }
                body! { real($($argument),*) => $($call)* }
            }
        }
    };
}

/// Calls the body of a row.
///
/// A path alone receives the real function, then all arguments of the program. With arguments of its own it receives
/// the call of the real function with the program's arguments, then these. In a `[made]` row the program's first
/// argument is the address of the result: the body receives the call with any other address in its place, and these, and
/// returns what is written there. The driver refuses a null pointer itself.
macro_rules! body {
    ($real:ident($first:ident $(, $argument:ident)*) => [made] $($body:ident)::+ ($($given:expr),*)) => {
        if $first.is_null() {
            return $real($first, $($argument),*);
        }
        abi::code($($body)::+(|made| $real(made, $($argument),*), $($given),*).map(|made| *$first = made))
    };
    ($real:ident($($argument:ident),*) => $($body:ident)::+ ($($given:expr),*)) => {
        $($body)::+(|| $real($($argument),*), $($given),*)
    };
    ($real:ident($($argument:ident),*) => $body:path) => { $body($real, $($argument),*) };
}
