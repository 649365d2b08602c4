/* Prints what src/bdb/layout.rs holds, from the db.h of libdb5.3-dev. Not part of the build:
 *   cc -o /tmp/bdb-layout lab/peers/layout/bdb.c && /tmp/bdb-layout
 */
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>
#include <db.h>

#define METHOD(type, name) printf(#type " %s %zu\n", #name, offsetof(type, name))
#define NUMBER(name) printf("%s %ld\n", #name, (long)name)

int main(void) {
    printf("%d.%d.%d\n", DB_VERSION_MAJOR, DB_VERSION_MINOR, DB_VERSION_PATCH);
    METHOD(DB, close); METHOD(DB, cursor); METHOD(DB, del); METHOD(DB, get); METHOD(DB, open); METHOD(DB, put);
    METHOD(DB, set_cachesize); METHOD(DB, sync);
    METHOD(DBC, close); METHOD(DBC, get);
    METHOD(DBT, data); METHOD(DBT, size); METHOD(DBT, ulen); METHOD(DBT, dlen); METHOD(DBT, doff);
    METHOD(DBT, app_data); METHOD(DBT, flags);
    printf("DBT size %zu\n", sizeof(DBT));
    NUMBER(DB_BTREE); NUMBER(DB_HASH); NUMBER(DB_CREATE); NUMBER(DB_EXCL); NUMBER(DB_THREAD); NUMBER(DB_NOSYNC);
    NUMBER(DB_NEXT); NUMBER(DB_SET_RANGE); NUMBER(DB_NOTFOUND); NUMBER(DB_BUFFER_SMALL); NUMBER(DB_DBT_USERMEM);
    return 0;
}
