//! `CLIENT TRACKING`, `CLIENT CACHING`, `CLIENT TRACKINGINFO` and `CLIENT GETREDIR`.

use std::sync::Arc;

use super::arguments::{integer, is_word};
use super::context::Context;
use crate::client::{ClientId, PublicState};
use crate::error::{CommandError, CommandResult, SYNTAX};
use crate::messaging::client::TrackingMode;
use crate::messaging::effects;
use crate::messaging::tracking::TrackedClient;

/// Most prefixes of one client. Redis has no bound.
const PREFIXES_MAX: usize = 1024;

/// Longest prefix in bytes: no key is longer.
const PREFIX_BYTES_MAX: usize = 64 << 10;

/// The options of `CLIENT TRACKING`.
#[derive(Debug, Default)]
struct Options {
    mode: TrackingMode,
    redirect: Option<Arc<PublicState>>,
    prefixes: Vec<Vec<u8>>,
    skips_own: bool,
}

/// `CLIENT TRACKING ON | OFF [REDIRECT id] [PREFIX prefix ...] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]`
pub(crate) fn tracking(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let options = parse(context, &arguments[1..])?;
    if is_word(arguments[0], "on") {
        check(context, &options)?;
        enable(context, options);
    } else if is_word(arguments[0], "off") {
        disable(context);
    } else {
        return Err(SYNTAX);
    }
    context.reply.write_ok();
    Ok(())
}

fn parse(context: &Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult<Options> {
    let mut options = Options::default();
    let mut rest = arguments;
    while let [word, after @ ..] = rest {
        rest = after;
        match (after, ()) {
            ([id, after @ ..], ()) if is_word(word, "redirect") => {
                if options.redirect.is_some() {
                    return Err(CommandError::new("ERR A client can only redirect to a single other client"));
                }
                let id = integer(id).map_err(|_| CommandError::new("ERR Invalid client ID"))?;
                let target = u64::try_from(id).ok().and_then(|id| context.shared.client(id));
                let missing = CommandError::new("ERR The client ID you want redirect to does not exist");
                options.redirect = Some(target.ok_or(missing)?);
                rest = after;
            }
            ([prefix, after @ ..], ()) if is_word(word, "prefix") => {
                options.prefixes.push(prefix.to_vec());
                rest = after;
            }
            _ if is_word(word, "bcast") => options.mode.is_broadcast = true,
            _ if is_word(word, "optin") => options.mode.is_opt_in = true,
            _ if is_word(word, "optout") => options.mode.is_opt_out = true,
            _ if is_word(word, "noloop") => options.skips_own = true,
            _ => return Err(SYNTAX),
        }
    }
    Ok(options)
}

/// Refuses options that do not fit each other or the present mode.
fn check(context: &Context<'_, '_>, options: &Options) -> CommandResult {
    let refuse = |text: &'static str| Err(CommandError::new(text));
    let (mode, present) = (options.mode, context.session.messaging.tracking);
    if !mode.is_broadcast && !options.prefixes.is_empty() {
        return refuse("ERR PREFIX option requires BCAST mode to be enabled");
    }
    if present.is_some_and(|present| present.is_broadcast != mode.is_broadcast) {
        return refuse(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it \
             with a different mode.",
        );
    }
    if mode.is_broadcast && (mode.is_opt_in || mode.is_opt_out) {
        return refuse("ERR OPTIN and OPTOUT are not compatible with BCAST");
    }
    if mode.is_opt_in && mode.is_opt_out {
        return refuse("ERR You can't specify both OPTIN mode and OPTOUT mode");
    }
    let switches = |present: TrackingMode| mode.is_opt_in && present.is_opt_out || mode.is_opt_out && present.is_opt_in;
    if present.is_some_and(switches) {
        return refuse(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it \
             with a different mode.",
        );
    }
    check_prefixes(context, &options.prefixes)
}

fn check_prefixes(context: &Context<'_, '_>, prefixes: &[Vec<u8>]) -> CommandResult {
    let present = context.shared.hub.tracking.find(context.session.public.id);
    let present = present.map(|client| client.prefixes).unwrap_or_default();
    if present.len() + prefixes.len() > PREFIXES_MAX {
        return Err(CommandError::new(format!("ERR too many prefixes: use at most {PREFIXES_MAX} for each client")));
    }
    if prefixes.iter().any(|prefix| prefix.len() > PREFIX_BYTES_MAX) {
        return Err(CommandError::new(format!("ERR a prefix is too long: use at most {PREFIX_BYTES_MAX} bytes")));
    }
    let overlap = |prefix: &[u8], other: &[u8]| prefix.starts_with(other) || other.starts_with(prefix);
    let refuse = |prefix: &[u8], which: &str, other: &[u8]| {
        let (prefix, other) = (String::from_utf8_lossy(prefix), String::from_utf8_lossy(other));
        Err(CommandError::new(format!(
            "ERR Prefix '{prefix}' overlaps with {which} prefix '{other}'. Prefixes for a single client must not \
             overlap."
        )))
    };
    for (index, prefix) in prefixes.iter().enumerate() {
        if let Some(other) = present.iter().find(|other| overlap(prefix, other)) {
            return refuse(prefix, "an existing", other);
        }
        if let Some(other) = prefixes[index + 1..].iter().find(|other| overlap(prefix, other)) {
            return refuse(prefix, "another provided", other);
        }
    }
    Ok(())
}

fn enable(context: &mut Context<'_, '_>, options: Options) {
    let Options { mode, redirect, mut prefixes, skips_own } = options;
    if mode.is_broadcast && prefixes.is_empty() {
        // All keys.
        prefixes.push(Vec::new());
    }
    context.session.messaging.prefix_bytes += prefixes.iter().map(Vec::len).sum::<usize>();
    let target = redirect.as_ref().map_or(0, |target| target.id);
    context.session.messaging.tracking = Some(mode);
    context.session.messaging.needs_barrier = true;
    context.session.public.with_details(|details| (details.is_tracking, details.redirect) = (true, target));
    context.shared.hub.tracking.enable(TrackedClient {
        client: Arc::clone(&context.session.public),
        redirect,
        is_broadcast: mode.is_broadcast,
        prefixes,
        skips_own,
        is_broken: false,
    });
}

fn disable(context: &mut Context<'_, '_>) {
    context.session.messaging.tracking = None;
    context.session.messaging.prefix_bytes = 0;
    context.session.messaging.is_caching_named = false;
    context.session.public.with_details(|details| (details.is_tracking, details.redirect) = (false, 0));
    effects::end_tracking(&context.shared.hub, &context.shared.runtime, context.session.public.id);
}

/// `CLIENT CACHING YES | NO`
pub(crate) fn caching(context: &mut Context<'_, '_>, word: &[u8]) -> CommandResult {
    let mode = context.session.messaging.tracking.filter(|mode| mode.is_opt_in || mode.is_opt_out);
    let Some(mode) = mode else {
        return Err(CommandError::new(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode \
             enabled",
        ));
    };
    let refusal = match () {
        () if is_word(word, "yes") && !mode.is_opt_in => {
            Some("YES is only valid when tracking is enabled in OPTIN mode.")
        }
        () if is_word(word, "no") && !mode.is_opt_out => {
            Some("NO is only valid when tracking is enabled in OPTOUT mode.")
        }
        () if is_word(word, "yes") || is_word(word, "no") => None,
        () => return Err(SYNTAX),
    };
    if let Some(refusal) = refusal {
        return Err(CommandError::new(format!("ERR CLIENT CACHING {refusal}")));
    }
    context.session.messaging.is_caching_named = true;
    context.reply.write_ok();
    Ok(())
}

/// `CLIENT GETREDIR`
pub(crate) fn getredir(context: &mut Context<'_, '_>) {
    let tracked = context.shared.hub.tracking.find(context.session.public.id);
    context.reply.write_integer(redirect_number(tracked.as_ref()));
}

/// Returns the number of the redirection target; 0 without a target, and -1 without tracking.
fn redirect_number(tracked: Option<&TrackedClient>) -> i64 {
    let number = |id: ClientId| i64::try_from(id).unwrap_or(i64::MAX);
    tracked.map_or(-1, |tracked| tracked.redirect.as_ref().map_or(0, |target| number(target.id)))
}

/// `CLIENT TRACKINGINFO`
pub(crate) fn trackinginfo(context: &mut Context<'_, '_>) {
    let tracked = context.shared.hub.tracking.find(context.session.public.id);
    let own = &context.session.messaging;
    let mode = own.tracking.unwrap_or_default();
    let known = [
        ("off", tracked.is_none()),
        ("on", tracked.is_some()),
        ("bcast", mode.is_broadcast),
        ("optin", mode.is_opt_in),
        ("caching-yes", mode.is_opt_in && own.is_caching_named),
        ("optout", mode.is_opt_out),
        ("caching-no", mode.is_opt_out && own.is_caching_named),
        ("noloop", tracked.as_ref().is_some_and(|tracked| tracked.skips_own)),
        ("broken_redirect", tracked.as_ref().is_some_and(|tracked| tracked.is_broken)),
    ];
    let flags: Vec<&str> = known.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect();
    let reply = &mut context.reply;
    reply.write_map(3);
    reply.write_bulk(b"flags");
    reply.write_set(flags.len());
    flags.iter().for_each(|flag| reply.write_bulk(flag.as_bytes()));
    reply.write_bulk(b"redirect");
    reply.write_integer(redirect_number(tracked.as_ref()));
    reply.write_bulk(b"prefixes");
    let prefixes = tracked.map(|tracked| tracked.prefixes).unwrap_or_default();
    reply.write_array(prefixes.len());
    prefixes.iter().for_each(|prefix| reply.write_bulk(prefix));
}
