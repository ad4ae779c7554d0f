//! Signs requests: `X-Signature: t=1700000000,v1=HEX` is an HMAC-SHA256 of time, a dot and the body, with a key shared with
//! the upstream, which can verify that this gateway forwarded the request recently.

use aws_lc_rs::hmac;
use ringmain_control::filter::{
    BodyAccess, Cx, Filter, FilterError, Flow, Options, Outcome, RequestBody, RequestHead, RequestInfo,
};
use serde::Deserialize;

/// Minimum length of keys in bytes; shorter ones can be guessed.
const KEY_BYTES: usize = 32;

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    key: String,
    #[serde(default = "header")]
    header: String,
}

fn header() -> String {
    "X-Signature".into()
}

/// Called for each use of the filter in the configuration; the returned closure is called once per worker.
pub(crate) fn configure(options: &Options) -> Result<impl Fn(&Cx) -> Sign + use<>, FilterError> {
    let settings: Settings = options.read()?;
    if settings.key.len() < KEY_BYTES {
        return Err(format!("expected a `key` of at least {KEY_BYTES} bytes").into());
    }
    Ok(move |_: &Cx| Sign {
        key: hmac::Key::new(hmac::HMAC_SHA256, settings.key.as_bytes()),
        header: settings.header.clone(),
    })
}

pub(crate) struct Sign {
    key: hmac::Key,
    header: String,
}

impl Sign {
    fn sign(&self, head: &mut RequestHead<'_>, body: &[u8]) -> Result<(), FilterError> {
        let time = head.about().cx().wall().as_secs();
        let mut context = hmac::Context::with_key(&self.key);
        context.update(format!("{time}.").as_bytes());
        context.update(body);
        let mut value = format!("t={time},v1=");
        for byte in context.sign().as_ref() {
            value += &format!("{byte:02x}");
        }
        head.set(&self.header, value)
    }
}

impl Filter for Sign {
    type Exchange = ();

    fn begin(&self, _: &RequestInfo<'_>) {}

    fn request_head<'a>(&'a self, (): &'a mut (), head: &'a mut RequestHead<'_>) -> Outcome<'a> {
        if head.has_body() {
            head.want_body(BodyAccess::Buffer);
        } else {
            self.sign(head, b"")?;
        }
        Ok(Flow::Continue)
    }

    fn request_body<'a>(&'a self, (): &'a mut (), body: &'a mut RequestBody<'_>) -> Outcome<'a> {
        // The head waits for the whole body.
        let bytes = body.bytes().to_vec();
        let head = body.head().ok_or("the head is sent before the body is whole")?;
        self.sign(head, &bytes)?;
        Ok(Flow::Continue)
    }
}
