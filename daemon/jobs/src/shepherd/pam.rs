//! The site's PAM policy for jobs: the account modules of `/etc/pam.d/tranche`, if that file exists.
//!
//! libpam is loaded only if there is a policy, so nodes without one need no libpam. A policy that cannot be
//! evaluated bars every job.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;

use nix::libc::{RTLD_NOW, dlerror, dlopen, dlsym};

use crate::account::Barred;

/// Paths of the policy; any of them activates it.
const POLICIES: [&str; 2] = ["/etc/pam.d/tranche", "/usr/lib/pam.d/tranche"];
const LIBRARY: &CStr = c"libpam.so.0";
const SERVICE: &CStr = c"tranche";

const PAM_SUCCESS: c_int = 0;
const PAM_CONV_ERR: c_int = 19;
const PAM_SILENT: c_int = 0x8000;
/// Results about the account; all others are failures of the policy itself.
/// PERM_DENIED, AUTH_ERR, USER_UNKNOWN, NEW_AUTHTOK_REQD, ACCT_EXPIRED, CRED_EXPIRED.
const ABOUT_ACCOUNT: [c_int; 6] = [6, 7, 10, 12, 13, 16];

/// `struct pam_conv`.
#[repr(C)]
struct Conversation {
    talk: extern "C" fn(c_int, *mut *const c_void, *mut *mut c_void, *mut c_void) -> c_int,
    data: *mut c_void,
}

type Start =
    unsafe extern "C" fn(*const c_char, *const c_char, *const Conversation, *mut *mut c_void) -> c_int;
type WithHandle = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
type Describe = unsafe extern "C" fn(*mut c_void, c_int) -> *const c_char;

/// PAM conversation function that fails every prompt, since no user is present.
extern "C" fn silence(_: c_int, _: *mut *const c_void, _: *mut *mut c_void, _: *mut c_void) -> c_int {
    PAM_CONV_ERR
}

/// Checks the account against the site's policy; succeeds if there is none.
pub(crate) fn permits(name: &str) -> Result<(), Barred> {
    if !POLICIES.iter().any(|policy| Path::new(policy).exists()) {
        return Ok(());
    }
    let user = CString::new(name).map_err(|error| Barred::ForGood(error.to_string()))?;
    let unasked = |why: String| {
        Barred::ForNow(format!("the policy for accounts in /etc/pam.d/tranche cannot be asked: {why}"))
    };
    let library = PamLibrary::open().map_err(unasked)?;
    match library.account(&user) {
        Ok(()) => Ok(()),
        Err((code, why)) if ABOUT_ACCOUNT.contains(&code) => {
            Err(Barred::ForGood(format!("the account {name} may not run jobs, by /etc/pam.d/tranche: {why}")))
        }
        Err((_, why)) => Err(unasked(why)),
    }
}

/// The functions used of libpam, which is never unloaded.
struct PamLibrary {
    start: Start,
    account: WithHandle,
    end: WithHandle,
    describe: Describe,
}

impl PamLibrary {
    fn open() -> Result<Self, String> {
        // SAFETY: LIBRARY is NUL-terminated. dlopen runs libpam's constructors, which have no preconditions,
        // and this process is single-threaded, so none of them races with other code.
        let handle = unsafe { dlopen(LIBRARY.as_ptr(), RTLD_NOW) };
        if handle.is_null() {
            return Err(last_error());
        }
        let find = |name: &CStr| {
            // SAFETY: `handle` came from a successful dlopen and is never closed; the name is NUL-terminated.
            let found = unsafe { dlsym(handle, name.as_ptr()) };
            if found.is_null() { Err(last_error()) } else { Ok(found) }
        };
        let names = [c"pam_start", c"pam_acct_mgmt", c"pam_end", c"pam_strerror"];
        let [start, account, end, describe] = names.map(find);
        // SAFETY: each address is that of the libpam.so.0 function of this name, and the types repeat the
        // signatures in pam_appl.h; data and function pointers have the same size on Linux.
        unsafe {
            Ok(Self {
                start: std::mem::transmute::<*mut c_void, Start>(start?),
                account: std::mem::transmute::<*mut c_void, WithHandle>(account?),
                end: std::mem::transmute::<*mut c_void, WithHandle>(end?),
                describe: std::mem::transmute::<*mut c_void, Describe>(describe?),
            })
        }
    }

    /// Evaluates the account modules; a failure carries PAM's code and text.
    fn account(&self, user: &CStr) -> Result<(), (c_int, String)> {
        let conversation = Conversation { talk: silence, data: ptr::null_mut() };
        let mut handle = ptr::null_mut();
        // SAFETY: both names are NUL-terminated. pam_start copies `conversation`, which outlives the handle
        // anyway: pam_end is called below.
        let started = unsafe {
            (self.start)(SERVICE.as_ptr(), user.as_ptr(), &raw const conversation, &raw mut handle)
        };
        if started != PAM_SUCCESS {
            return Err((started, format!("pam_start answers {started}")));
        }
        // SAFETY: pam_start succeeded, so `handle` is valid until pam_end below.
        let answer = unsafe { (self.account)(handle, PAM_SILENT) };
        // SAFETY: `handle` is valid as above; the result is null or a static string.
        let text = unsafe { (self.describe)(handle, answer) };
        let why = if text.is_null() {
            format!("it answers {answer}")
        } else {
            // SAFETY: the pointer was checked for null, and pam_strerror returns static NUL-terminated
            // strings.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        // SAFETY: `handle` is valid, and this is its last use.
        unsafe { (self.end)(handle, answer) };
        if answer == PAM_SUCCESS { Ok(()) } else { Err((answer, why)) }
    }
}

fn last_error() -> String {
    // SAFETY: dlerror has no preconditions; this process is single-threaded, so the text stays valid until it
    // is copied below.
    let text = unsafe { dlerror() };
    if text.is_null() {
        return "libpam cannot be loaded".into();
    }
    // SAFETY: the pointer was checked for null, and dlerror returns NUL-terminated strings.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
